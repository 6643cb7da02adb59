"""Prints messages for `tailrace tail`: values, JSON, by a template, or in columns for people.

Bytes go out as they are, except to a terminal, which would take some of them for commands.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.cli.common import messages, output, template
from tailrace.cli.common.messages import Row
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.client import Message

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_NO_LIMIT = 1 << 30

Line = Callable[["Message"], bytes]


def line(*, as_json: bool, form: str | None, many_topics: bool) -> Line:
    """Returns the function that formats a message, for the options and the output."""
    if as_json and form is not None:
        raise Failure("--json and --format exclude each other", ExitCode.USAGE)
    if as_json:
        return _of_row(lambda row: messages.to_json(row).encode() + b"\n")
    if form is not None:
        try:
            return _of_row(template.compiled(form))
        except template.BadTemplate as error:
            raise Failure(f"--format: {error}", ExitCode.USAGE) from None
    if sys.stdout.isatty():
        dim = (_DIM, _PLAIN) if _has_colours() else ("", "")
        return _of_row(lambda row: columns(row, many_topics=many_topics, dim=dim))
    return lambda message: (message.value() or b"") + b"\n"


def columns(row: Row, *, many_topics: bool, dim: tuple[str, str]) -> bytes:
    """Returns the line of a message: its position, time and key, the value, and headers."""
    topic = f"{row.topic} " if many_topics else ""
    place = f"{topic}{row.partition}:{row.offset}"
    time = output.time(messages.NO_TIMESTAMP if row.timestamp is None else row.timestamp)
    start = f"{dim[0]}{place:<10}  {time}  {_printable(row.key):<8}{dim[1]}  "
    headers = "".join(f"  {dim[0]}[{_text(name)}: {_printable(value)}]{dim[1]}" for name, value in row.headers)
    return f"{start}{_printable(row.value)}{headers}\n".encode("utf-8", "backslashreplace")


def _of_row(make: Callable[[Row], bytes]) -> Line:
    return lambda message: make(messages.of_message(message))


def _text(name: str) -> str:
    return _printable(name.encode("utf-8", "surrogateescape"))


def _printable(data: bytes | None) -> str:
    return output.short(data, _NO_LIMIT)


def _has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
