"""Where reading begins: an offset, a time, or an end of the partition. Pure."""

from datetime import UTC, datetime
from typing import NamedTuple

from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.util import times

OFFSET_MAX = (1 << 63) - 1
GRAMMAR = f"an offset, earliest, latest, or a time: {times.GRAMMAR}"
_ENDS = {"earliest": EARLIEST, "latest": LATEST}


class Position(NamedTuple):
    """`time` is in milliseconds since 1970, EARLIEST or LATEST; None if there is an offset."""

    offset: int | None
    time: int | None


def position_of(text: str, now: datetime) -> Position:
    """Takes a text of some dozen characters. Times without a zone are UTC. Raises ValueError."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        if int(text) > OFFSET_MAX:
            raise ValueError(f"an offset is at most {OFFSET_MAX}")
        return Position(int(text), None)
    if text in _ENDS:
        return Position(None, _ENDS[text])
    try:
        moment = times.milliseconds(times.parse(text, now, UTC))
    except times.UnrecognizedTime:
        raise ValueError(f"it is {GRAMMAR}") from None
    return Position(None, max(0, moment))
