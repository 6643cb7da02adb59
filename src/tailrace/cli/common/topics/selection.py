"""Selects topics by name or by pattern.

A topic's name has only letters, digits, `.`, `_` and `-`. Whatever has another character in it is a pattern: a regular
expression of Python's, which matches a whole name. Internal topics are meant only by patterns that begin with `__`.
"""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from tailrace.cli.common.output import ExitCode, Failure

_NAME_MAX = 249
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


class Selection:
    """Names and patterns, as given. `always` takes each for a pattern."""

    def __init__(self, given: Iterable[str], *, always: bool = False) -> None:
        given = list(given)
        self.names = [text for text in given if not (always or _NO_NAME.search(text))]
        self._patterns = [_compiled(text) for text in given if always or _NO_NAME.search(text)]

    @property
    def is_fixed(self) -> bool:
        """Whether it means the same topics for ever."""
        return not self._patterns

    def of(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that are meant."""
        return sorted(name for name in topics if name in self.names or self._matches(name))

    def hint(self) -> str:
        """A suggestion of what a pattern was meant to be; mostly empty."""
        for pattern in self._patterns:
            if re.search(r"(?:^|[A-Za-z0-9_-])\*", pattern.pattern):
                meant = re.sub(r"(?<![.\])])\*", ".*", pattern.pattern)
                return f"; patterns are regular expressions: did you mean '{meant}'?"
        return ""

    def _matches(self, name: str) -> bool:
        return any(
            pattern.fullmatch(name) and (not is_internal(name) or pattern.pattern.lstrip("^").startswith("__"))
            for pattern in self._patterns
        )


def is_internal(name: str) -> bool:
    return name.startswith("__")


def similar(name: str, topics: Iterable[str]) -> list[str]:
    """Returns names that the user may have meant."""
    return get_close_matches(name, [topic for topic in topics if not is_internal(topic)], n=3, cutoff=0.7)


def require_legal(name: str) -> None:
    """Raises a `Failure` where no topic can have that name."""
    if _NO_NAME.search(name) or name in ("", ".", "..") or len(name) > _NAME_MAX:
        what = f"a topic's name has 1 to {_NAME_MAX} letters, digits, '.', '_' and '-'"
        raise Failure(f"no topic can be called {name!r}: {what}", ExitCode.USAGE)


def require(names: Iterable[str], topics: Collection[str], bootstrap: str, *, makes: bool = False) -> None:
    """Raises a `Failure` where a topic is not there, with similar names that may have been meant."""
    for name in names:
        if name in topics:
            continue
        message = f"there is no topic {name!r} at {bootstrap}"
        if close := similar(name, topics):
            message += f"; did you mean {' or '.join(close)}?"
        if makes:
            message += f"\n  `tailrace topic create {name}` makes it"
        elif not close:
            message += "\n  `tailrace topic list` shows which there are"
        raise Failure(message, ExitCode.NOT_FOUND)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        hint = "; every topic is '.*'" if text == "*" else ""
        raise Failure(f"{text!r} is neither a name nor a regular expression: {error}{hint}", ExitCode.USAGE) from None
