"""Forecasts when a reader loses messages: walks the segments there are and those to come, and compares when each goes
with when the reader has left it. Pure.

    goes_age     when retention.ms has passed since the newest record of the segment
    goes_size    when so much has been written behind the segment that the log without it has retention.bytes
    goes_budget  when all logs together exceed the disk budget by more than all older segments that may be deleted
    goes_cap     when a hold for the group reaches its limit, or expires; the rules above wait for it

A segment goes with the first of these, but not before the segments in front of it, and only when retention looks:
`rounded` moves it to the next tick. The reader loses messages with the first segment that goes before it has left it.

Segments to come are all alike (full after the same time), so the first of them that goes too early is computed
instead of searched. Times are seconds from now.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.facts.segments import SegmentFact

NEVER = math.inf
SOONER = 1e-9
LATER_MAX = 100  # segments that may go with the same tick, and are looked at


class Rule(StrEnum):
    AGE = "age"
    SIZE = "size"
    BUDGET = "budget"
    HOLD_CAP = "hold_cap"


class Hold(NamedTuple):
    """What holds segments for the reader. -1 is no limit; `refuses` if producers are refused at the limit. `ends_s` is
    when it expires if the reader gives no sign.
    """

    size: int
    ms: int
    refuses: bool
    ends_s: float = NEVER


class Budget(NamedTuple):
    """The disk budget. `older_than` gives the bytes that go before a segment with this newest timestamp does."""

    size: int
    all_logs: int
    droppable: int
    bytes_per_second: float
    older_than: Callable[[int], int]


class Limits(NamedTuple):
    """What decides when segments go: -1 where there is no limit. `tick_at` is one of the times at which retention
    looks, None if unknown.
    """

    retention_ms: int = -1
    retention_bytes: int = -1
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    tick_ms: int = 0
    tick_at: int | None = None
    active_since: int | None = None
    hold: Hold | None = None
    budget: Budget | None = None


class Forecast(NamedTuple):
    seconds: float
    rule: Rule | None


NO_LOSS = Forecast(NEVER, None)


class Walk:
    """The segments of one partition at one moment, at one write rate. Segments are those of the log, in order; when
    they go is computed once, for all readers.

    `unread_at` is the timestamp of the first unread record of the group for which segments are held.
    """

    def __init__(
        self,
        segments: Sequence[SegmentFact],
        limits: Limits,
        write: float,
        write_bytes: float,
        now_ms: int,
        unread_at: int | None = None,
    ) -> None:
        """Rates are records and bytes per second."""
        self._segments = _with_all_ages(segments)
        self._limits = limits
        self._write, self._write_bytes = write, write_bytes
        self._now_ms = now_ms
        self._all_go = self._when_all_go(unread_at)

    def forecast(self, position: int, read: float, *, rounded: bool) -> Forecast:
        """When a reader at `position` that reads so many records per second loses messages."""
        limits = self._limits
        if limits.hold is not None and limits.hold.refuses and limits.hold.ends_s == NEVER:
            return NO_LOSS
        first = bisect_right(self._segments, position, key=lambda one: one.next)
        for number in range(min(first, len(self._segments) - 1), len(self._segments)):
            end = float(self._segments[number].next)
            if number == len(self._segments) - 1:
                end += self._write * max(0.0, self._seconds_until_full()) + 1
            goes, rule = self._all_go[number]
            goes = self._at_tick(goes, rounded)
            left = (end - position) / read if read > 0 else NEVER
            if end > position and goes < left:
                return Forecast(max(0.0, goes), rule)
        return self._later(position, read, rounded=rounded)

    def _when_all_go(self, unread_at: int | None) -> list[Forecast]:
        """Returns a forecast for each segment; none goes before those in front of it."""
        found: list[Forecast] = []
        behind = sum(segment.size for segment in self._segments)
        newest_before = unread_at
        for number, segment in enumerate(self._segments, 1):
            behind -= segment.size
            is_active = number == len(self._segments)
            newest_s = self._seconds_until_full() if is_active else self._seconds_since_newest(segment)
            goes = self._goes(segment, newest_s, behind, newest_before)
            found.append(goes if not found or goes.seconds > found[-1].seconds else found[-1])
            newest_before = segment.newest
        return found

    # Segments there are

    def _seconds_since_newest(self, segment: SegmentFact) -> float:
        """Negative; 0 if unknown."""
        return 0.0 if segment.newest is None else (segment.newest - self._now_ms) / 1000

    def _seconds_until_full(self) -> float:
        """When the active segment gets its last record; in the past if nothing is written any more."""
        active = self._segments[-1]
        if self._write_bytes <= 0:
            return self._seconds_since_newest(active)
        since = self._now_ms if self._limits.active_since is None else self._limits.active_since
        rolled = max(0.0, (since + self._limits.segment_ms - self._now_ms) / 1000)
        return min(max(0, self._limits.segment_bytes - active.size) / self._write_bytes, rolled)

    def _goes(self, segment: SegmentFact, newest_s: float, behind: int, newest_before: int | None) -> Forecast:
        limits = self._limits
        if segment is self._segments[-1]:
            behind -= round(max(0.0, newest_s) * self._write_bytes) if newest_s > 0 else 0
        found = min(
            Forecast(newest_s + limits.retention_ms / 1000 if limits.retention_ms >= 0 else NEVER, Rule.AGE),
            Forecast(self._until_written(limits.retention_bytes - behind, limits.retention_bytes), Rule.SIZE),
            key=lambda one: one.seconds,
        )
        if limits.hold is not None:
            cap = self._cap(limits.hold, behind, segment.size, newest_before)
            found = Forecast(max(found.seconds, cap), Rule.HOLD_CAP if cap > found.seconds else found.rule)
            if limits.hold.refuses:  # the budget takes nothing either
                return found
        return min(found, self._goes_for_budget(newest_s), key=lambda one: one.seconds)

    def _until_written(self, size: float, limit: int) -> float:
        if limit < 0:
            return NEVER
        return 0.0 if size <= 0 else size / self._write_bytes if self._write_bytes > 0 else NEVER

    def _cap(self, hold: Hold, behind: int, size: int, newest_before: int | None) -> float:
        if hold.refuses:
            return hold.ends_s
        by_size = self._until_written(hold.size - behind - size, hold.size)
        by_age = NEVER
        if hold.ms >= 0:
            by_age = 0.0 if newest_before is None else (newest_before + hold.ms - self._now_ms) / 1000
        return min(by_size, by_age, hold.ends_s)

    def _goes_for_budget(self, newest_s: float) -> Forecast:
        budget = self._limits.budget
        if budget is None or budget.size < 0 or budget.bytes_per_second <= 0:
            return NO_LOSS
        if newest_s > 0:
            room = budget.size - budget.all_logs + budget.droppable
            return Forecast(max(0.0, room / budget.bytes_per_second) + newest_s, Rule.BUDGET)
        older = budget.older_than(self._now_ms + round(newest_s * 1000))
        return Forecast(max(0.0, (budget.size - budget.all_logs + older) / budget.bytes_per_second), Rule.BUDGET)

    # Segments to come

    def _later(self, position: int, read: float, *, rounded: bool) -> Forecast:
        """The first segment to come, number k, goes at `first + k * fill + keep`, and the reader has left it at
        `(end - position + write * (first + k * fill)) / read`.
        """
        hold = self._limits.hold
        if self._write_bytes <= 0 or not self._segments or not 0 < read < self._write or (hold and hold.refuses):
            return NO_LOSS
        latest = self._all_go[-1].seconds
        keep, rule = self._kept_s()
        fill = min(self._limits.segment_bytes / self._write_bytes, self._limits.segment_ms / 1000)
        first = self._seconds_until_full() + fill
        if math.isinf(keep) or fill <= 0:
            return NO_LOSS
        end = self._segments[-1].next
        number = max(0, math.floor((((keep * read - end + position) / (self._write - read)) - first) / fill))
        ticks = math.ceil(self._limits.tick_ms / 1000 / fill)
        for k in range(number, number + 3 + min(ticks, LATER_MAX)):
            written = first + k * fill
            goes = self._at_tick(max(latest, written + keep), rounded)
            if goes < (end - position + self._write * written) / read:
                return Forecast(goes, rule)
        return Forecast(goes, rule)

    def _kept_s(self) -> tuple[float, Rule | None]:
        """How long a segment to come is kept after it is full, and what ends that."""
        limits, budget = self._limits, self._limits.budget
        by_age = limits.retention_ms / 1000 if limits.retention_ms >= 0 else NEVER
        by_size = limits.retention_bytes / self._write_bytes if limits.retention_bytes >= 0 else NEVER
        kept, rule = min((by_age, Rule.AGE), (by_size, Rule.SIZE))
        if (hold := limits.hold) is not None:
            by_cap = min(
                max(0, hold.size - limits.segment_bytes) / self._write_bytes if hold.size >= 0 else NEVER,
                hold.ms / 1000 if hold.ms >= 0 else NEVER,
            )
            kept, rule = max((kept, rule), (by_cap, Rule.HOLD_CAP))
        if budget is not None and budget.size >= 0 and budget.bytes_per_second > 0:
            room = max(0, budget.size - budget.all_logs + budget.droppable)
            kept, rule = min((kept, rule), (room / budget.bytes_per_second, Rule.BUDGET))
        return kept, None if math.isinf(kept) else rule

    # Ticks of retention

    def _at_tick(self, seconds: float, rounded: bool) -> float:
        """If rounded, when retention looks next; half a tick later if it is unknown when it does."""
        tick = self._limits.tick_ms / 1000
        if not rounded or tick <= 0 or math.isinf(seconds):
            return seconds
        if self._limits.tick_at is None:
            return seconds + tick / 2
        since = (self._now_ms - self._limits.tick_at) / 1000
        return math.ceil((since + max(0.0, seconds)) / tick - SOONER) * tick - since


def _with_all_ages(segments: Sequence[SegmentFact]) -> Sequence[SegmentFact]:
    """Gives segments of unknown age that of the one before: they may go later than that, and not sooner."""
    if all(segment.newest is not None for segment in segments):
        return segments
    known = next((segment.newest for segment in segments if segment.newest is not None), None)
    filled: list[SegmentFact] = []
    for segment in segments:
        known = segment.newest if segment.newest is not None else known
        filled.append(segment._replace(newest=known))
    return filled


def low(forecasts: Sequence[Forecast]) -> Forecast:
    return min(forecasts, key=lambda one: one.seconds, default=NO_LOSS)
