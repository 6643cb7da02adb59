"""How `tailrace tail` prints messages: values, JSON, by a template, or in columns for people. Bytes go out as they are,
except to a terminal, which would take some of them for commands.
"""

import os
import sys
from collections.abc import Callable

from tailrace.cli import messages, output, template
from tailrace.cli.messages import Row
from tailrace.cli.output import ExitCode, Failure

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

Line = Callable[[Row], bytes]


def line(*, as_json: bool, form: str | None, many_topics: bool) -> Line:
    """The function that makes what is printed for one message, to be chosen by what was asked for, and where it goes."""
    if as_json and form is not None:
        raise Failure("--json and --format exclude each other", ExitCode.USAGE)
    if as_json:
        return lambda row: messages.to_json(row).encode("utf-8", "backslashreplace") + b"\n"
    if form is not None:
        try:
            return template.compiled(form)
        except template.BadTemplate as error:
            raise Failure(f"--format: {error}", ExitCode.USAGE) from None
    if not sys.stdout.isatty():
        return lambda row: (row.value or b"") + b"\n"
    dim = (_DIM, _PLAIN) if _has_colours() else ("", "")
    return lambda row: columns(row, many_topics=many_topics, dim=dim)


def columns(row: Row, *, many_topics: bool, dim: tuple[str, str]) -> bytes:
    """Where and when and under what key, the value, and headers."""
    topic = f"{row.topic} " if many_topics else ""
    place = f"{topic}{row.partition}:{row.offset}"
    time = output.time(messages.NO_TIMESTAMP if row.timestamp is None else row.timestamp)
    start = f"{dim[0]}{place:<10}  {time}  {_printable(row.key):<8}{dim[1]}  "
    headers = "".join(f"  {dim[0]}[{name}: {_printable(value)}]{dim[1]}" for name, value in row.headers)
    return f"{start}{_printable(row.value)}{headers}\n".encode("utf-8", "backslashreplace")


def _printable(data: bytes | None) -> str:
    return output.short(data, 1 << 30)


def _has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
