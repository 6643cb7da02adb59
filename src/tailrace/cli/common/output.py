"""Failures with exit codes, warnings, tables, progress bars, and values as text.

Results go to stdout and everything else to stderr. Where stdout is no terminal, or NO_COLOR is set, output is plain.
`rich` is imported by those who draw, when they do; so is all that a broker does not need, which starts with this, too.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BAR_FROM_BYTES = 64 << 20  # less than that is read before a bar could be looked at
_INTERRUPTED = 130  # as shells have it
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1  # or damage was found
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5


class Failure(Exception):
    """The verb cannot do it: what happened, and what to do next. Ends the process with `code`."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def warn(message: str) -> None:
    print(f"tailrace: {message}", file=sys.stderr)


def console(*, markup: bool = True) -> "Console":
    """Returns the console for tables. In a file or a pipe, lines are as long as they need to be. Without `markup`, text
    in brackets is printed unchanged, whatever its source.
    """
    from rich.console import Console

    return Console(highlight=False, markup=markup, emoji=markup, width=None if sys.stdout.isatty() else 240)


def table(first: str, *others: str, texts: Collection[str] = ()) -> "Table":
    """To be filled with rows. The columns behind the first have numbers, but for those in `texts`."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column(first, overflow="fold", justify="left")
    for heading in others:
        is_text = heading in texts
        drawn.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    return drawn


def draw(drawn: "Table", on: "Console") -> None:
    """Prints a table. Into a file or a program, without the blanks that fill its last column."""
    if on.is_terminal:
        on.print(drawn)
        return
    with on.capture() as captured:
        on.print(drawn)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def confirm(question: str) -> None:
    """Returns only if the user says yes."""
    import typer

    if not sys.stdin.isatty():
        raise Failure("nothing was done: there is no terminal to ask at; --yes goes on without", ExitCode.REFUSED)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:  # ctrl-C, ctrl-D
        print(file=sys.stderr)
        interrupt("nothing was done")
    if not agreed:
        raise Failure("nothing was done", ExitCode.REFUSED)


def interrupt(message: str) -> NoReturn:
    """Ends a verb that the user has interrupted."""
    import typer

    warn(f"interrupted: {message}")
    raise typer.Exit(_INTERRUPTED)


@contextmanager
def progress_bar(label: str, total: int, least: int = _BAR_FROM_BYTES) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of bytes done since its last call. The bar is drawn on a terminal, for
    `least` bytes or more.
    """
    if total < least or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def share_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the share of a long task that is done. The bar is drawn on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def number(value: int) -> str:
    return f"{value:,}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(value: int) -> str:
    """A number of bytes as people say it: 980 B, 1.5 MB."""
    amount = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float | None) -> str:
    """The two largest units: `3 h 20 min`, `45 s`."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    words: list[str] = []
    for unit, length in _UNITS:
        if left >= length or (unit == "s" and not words):
            words.append(f"{left // length} {unit}")
            left %= length
            if len(words) == 2:
                break
        elif words:
            break
    return " ".join(words)


def minute(timestamp_ms: int) -> str:
    """Local time to the minute, without the year."""
    from datetime import datetime

    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime("%m-%d %H:%M")


def time(timestamp_ms: int) -> str:
    """Local time with its offset from UTC; `-` where there is none."""
    from datetime import datetime

    if timestamp_ms == -1:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a timestamp may be any number of 64 bits
        return f"{timestamp_ms} ms"


def short(data: bytes | None, width: int) -> str:
    """Bytes on one line, in at most `width` characters: as text where they are text, else in hexadecimal."""
    if data is None:
        return "-"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "0x" + data[:width].hex()
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: width + 1])
    return text if len(text) <= width else text[: width - 1] + "…"
