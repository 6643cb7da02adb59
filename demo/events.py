"""The events of act two, and the book that is kept of them: what each window must come to, live and replayed.

An event is a page view or an order, with the time at which it happened. Most arrive within a second and a half. Some
arrive late, into a window of which the live pipeline has said that it is closed: so it is known, and not guessed, that
live leaves them out. And some are malformed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

WINDOW_MS = 4_000  # as demo/pipelines.py has it
PATIENCE_MS = 4_000

VIEW, ORDER = "view", "order"

MALFORMED: tuple[Callable[[bytes], bytes], ...] = (
    lambda value: value + b" and more",
    lambda value: value + value,
    lambda value: value[: len(value) // 2],
    lambda value: b"   ",
    lambda value: value.replace(b'"at": "', b'"at": "not '),
    lambda value: b"[" + value + b"]",
    lambda value: b"\xff" + value,
)


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    at_ms: int
    cents: int = 0

    def value(self) -> bytes:
        fields: dict[str, object] = {"kind": self.kind, "at": moment(self.at_ms)}
        if self.kind == ORDER:
            fields["amount"] = self.cents / 100
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Counts:
    """What a window comes to."""

    views: int = 0
    orders: int = 0
    cents: int = 0

    @property
    def events(self) -> int:
        return self.views + self.orders

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.views + other.views, self.orders + other.orders, self.cents + other.cents)


Windows = Mapping[int, Counts]  # by the time at which a window begins, in ms


@dataclass(slots=True)
class Book:
    """What was sent."""

    in_time: dict[int, Counts] = field(default_factory=dict)
    late: dict[int, Counts] = field(default_factory=dict)
    malformed: int = 0
    last_ms: int = 0  # the latest time of an event that was in time
    failures: list[str] = field(default_factory=list)

    def note(self, event: Event, is_late: bool = False) -> None:
        windows, begin = self.late if is_late else self.in_time, window_of(event.at_ms)
        one = Counts(orders=1, cents=event.cents) if event.kind == ORDER else Counts(views=1)
        windows[begin] = windows.get(begin, Counts()) + one
        if not is_late:
            self.last_ms = max(self.last_ms, event.at_ms)

    @property
    def sent(self) -> int:
        return total(self.in_time) + total(self.late) + self.malformed

    @property
    def watermark_ms(self) -> int:
        """Where live's watermark is when it has seen everything."""
        return self.last_ms - PATIENCE_MS

    def live(self) -> dict[int, Counts]:
        """What live must have said when it has seen everything: windows that are closed, without what came late."""
        return {begin: one for begin, one in self.in_time.items() if begin + WINDOW_MS <= self.watermark_ms}

    def replayed(self) -> dict[int, Counts]:
        """What a replay must say: everything."""
        begins = sorted({*self.in_time, *self.late})
        return {begin: self.in_time.get(begin, Counts()) + self.late.get(begin, Counts()) for begin in begins}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of what was found, beside what was to be found. A loss here does not make up for a double there."""

    counted: int
    lost: int
    doubled: int
    is_right: bool  # in every figure, the money included


def compare(expected: Windows, found: Windows) -> Verdict:
    begins = {*expected, *found}
    differences = [
        getattr(found.get(begin, Counts()), name) - getattr(expected.get(begin, Counts()), name)
        for begin in begins
        for name in ("views", "orders")
    ]
    return Verdict(
        counted=total(found),
        lost=sum(-difference for difference in differences if difference < 0),
        doubled=sum(difference for difference in differences if difference > 0),
        is_right=bool(expected) and dict(expected) == dict(found),
    )


def total(windows: Windows) -> int:
    return sum(one.events for one in list(windows.values()))


def window_of(at_ms: int) -> int:
    return at_ms // WINDOW_MS * WINDOW_MS


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
