"""Refuses words in src that readers stumble over, and says what to write instead.

    python scripts/check_words.py [DIRECTORY]      exit code 1 where a refused word is found

Whole words count, in any case, also where they are part of a name (`upkeep_seconds`, `UpkeepJob`) or where a line ends
between them. A name that cannot change, because users or files on disk have it, goes into EXCEPTIONS with its reason.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[1] / "src"
SUFFIXES = {".py", ".properties"}
GAP = r"(?:[\s_#-]+)"  # between the words of a phrase: also the end of a line, and the `#` of the next one


class Refused(NamedTuple):
    pattern: str
    instead: str


class Allowed(NamedTuple):
    """One place where a refused word stays: every match of `text` in `path` (below src) is passed over."""

    path: str
    text: str
    reason: str


WORDS = [
    Refused("afterwards", 'present tense ("Deletes the files."), or "On return, …"'),
    Refused("somebody", 'the subject: "a client", "the caller", "another thread"'),
    Refused("nobody", 'the subject: "no client", "no thread", "unknown"'),
    Refused("whoever", 'the subject: "the caller", "a client that"'),
    Refused("short way", "fast path"),
    Refused("long way", "slow path"),
    Refused("lend|lends|lending|lent|loan|loans|loaned", "hand off, handed-off"),
    Refused("upkeep", "background tasks, maintenance"),
    Refused("own logs", "internal topics"),
    Refused("muting", "throttling"),
    Refused("foreign configs?", "ignored configs"),
    Refused(r"in line(?!\s+with\b)", "in the queue, queued"),
]
CLASSES = Refused("Place|Part|Run|Form|Wanted", "a name for the thing: SegmentPosition, ResponseChunk, RequestTemplate")
EXCEPTIONS: list[Allowed] = []


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} → {self.instead}"


def find(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields position, word and replacement of each refused word of a file."""
    for pattern, instead in _compiled():
        for match in pattern.finditer(text):
            yield match.start("word"), " ".join(re.split(GAP, match["word"])), instead


def _compiled() -> list[tuple[re.Pattern[str], str]]:
    compiled = []
    for words, instead in WORDS:
        phrase = f"(?P<word>{words.replace(' ', GAP)})"
        # A word begins and ends where no letter is beside it, or where the case changes: `startUpkeep`, `UpkeepJob`.
        pattern = rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{phrase})(?:(?![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
        compiled.append((re.compile(pattern), instead))
    compiled.append((re.compile(rf"^[ \t]*class _*(?P<word>{CLASSES.pattern})\b", re.MULTILINE), CLASSES.instead))
    return compiled


def check(root: Path, exceptions: Sequence[Allowed]) -> tuple[list[Found], list[Allowed]]:
    """Returns what is refused below `root`, and the exceptions that match nothing."""
    found: list[Found] = []
    unused = set(exceptions)
    for file in sorted(file for file in root.rglob("*") if file.suffix in SUFFIXES):
        path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        allowed = {exception: _ranges(exception.text, text) for exception in exceptions if exception.path == path}
        for position, word, instead in sorted(find(text)):
            covering = {exception for exception, ranges in allowed.items() if any(position in each for each in ranges)}
            unused -= covering
            if not covering:
                found.append(Found(path, text.count("\n", 0, position) + 1, word, instead))
    return found, sorted(unused)


def _ranges(part: str, text: str) -> list[range]:
    return [range(match.start(), match.end()) for match in re.finditer(re.escape(part), text)]


def main(root: Path = SOURCES, exceptions: Sequence[Allowed] = EXCEPTIONS) -> int:
    found, unused = check(root, exceptions)
    for each in found:
        print(f"{root.name}/{each}")
    for exception in unused:
        print(
            f"{Path(__file__).name}: the exception {exception.text!r} of {exception.path} matches nothing. Remove it."
        )
    if found:
        print(
            f"{len(found)} refused words. Reword them; a public or on-disk name goes into EXCEPTIONS with its reason."
        )
    return 1 if found or unused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES))
