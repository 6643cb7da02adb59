"""Measures backlogs: how many bytes lie behind a position, and since when its first unread record waits. Pure.

Of each partition whose producers may be slowed, `Samples` keep where the log stood at certain moments: an offset, the
bytes before it, and the time at which the record at that offset was appended. One is taken per 64 KiB or 100 ms of
appends, and found again by bisection: an append costs a sample at most, a commit nothing. Between two samples bytes
are shared out by offset; a record counts as old as the sample before it, so it may count as 100 ms too old.

The samples of a partition are at most `SAMPLES_MAX`. When there are more, every other one goes: the further back, the
coarser. What was appended before the start of the broker is sampled from the bounds of segments, whose times are the
records' own timestamps, shared out by offset inside a segment: coarse, and without a read from the disk.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.log.retention import SegmentFacts

SAMPLE_BYTES = 64 << 10
SAMPLE_MS = 100
SAMPLES_MAX = 1024  # of a partition: 24 KiB
SAMPLES_PER_SEGMENT = 16  # of those that were there before


class Backlog(NamedTuple):
    """The records behind a position: their bytes, and the age of the first one; 0 if there are none."""

    bytes: int = 0
    age_ms: int = 0

    def fill(self, bytes_max: int, age_ms_max: int) -> float:
        """Returns the share of the limits that is used, of the one that is nearer. A limit below 0 is none."""
        return max(_share(self.bytes, bytes_max), _share(self.age_ms, age_ms_max))


def _share(value: int, limit: int) -> float:
    if limit < 0 or value <= 0:
        return 0.0
    return value / limit if limit else float("inf")


class Samples:
    __slots__ = ("_before", "_offsets", "_times", "end", "total")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._before = array("q")  # bytes before that offset, from an arbitrary zero on
        self._times = array("q")
        self.total = 0  # bytes before `end`
        self.end = 0

    @classmethod
    def of_segments(cls, segments: Iterable[SegmentFacts], begun_ms: int | None, now_ms: int) -> "Samples":
        """Samples of what there is already. `begun_ms` is the time of the very first record, if that is known."""
        samples, known = cls(), [segment for segment in segments if segment.end_offset > segment.base_offset]
        steps = max(1, min(SAMPLES_PER_SEGMENT, SAMPLES_MAX // 2 // max(1, len(known))))
        for segment, first_ms, last_ms in zip(known, *_times_of(known, begun_ms, now_ms), strict=True):
            samples._add_segment(segment, first_ms, last_ms, steps)
        return samples

    def _add_segment(self, segment: SegmentFacts, first_ms: int, last_ms: int, steps: int) -> None:
        offsets = segment.end_offset - segment.base_offset
        for step in range(min(steps, offsets)):
            passed = step * offsets // steps if offsets > steps else step
            self._add(
                segment.base_offset + passed,
                self.total + segment.size * passed // offsets,
                first_ms + (last_ms - first_ms) * passed // offsets,
            )
        self.total += segment.size
        self.end = segment.end_offset

    def _add(self, offset: int, before: int, at_ms: int) -> None:
        self._offsets.append(offset)
        self._before.append(before)
        self._times.append(at_ms)

    def __len__(self) -> int:
        return len(self._offsets)

    def appended(self, base_offset: int, next_offset: int, size: int, now_ms: int, start_offset: int) -> None:
        """Notes an append. What lies before `start_offset` is no longer there."""
        if (
            not self._offsets
            or self.total - self._before[-1] >= SAMPLE_BYTES
            or not 0 <= now_ms - self._times[-1] < SAMPLE_MS
        ):
            self._add(base_offset, self.total, now_ms)
            if len(self._offsets) > SAMPLES_MAX:
                self._thin_out(start_offset)
        self.total += size
        self.end = next_offset

    def _thin_out(self, start_offset: int) -> None:
        gone = max(0, bisect_right(self._offsets, start_offset) - 1)
        step = 1 if len(self._offsets) - gone <= SAMPLES_MAX // 2 else 2
        self._offsets = self._offsets[gone::step]
        self._before = self._before[gone::step]
        self._times = self._times[gone::step]

    def behind(self, position: int, now_ms: int) -> Backlog:
        """Returns the backlog of a group that has read everything before `position`."""
        if position >= self.end or not self._offsets:
            return Backlog()
        number = max(0, bisect_right(self._offsets, position) - 1)
        offset, before = self._offsets[number], self._before[number]
        is_last = number + 1 == len(self._offsets)
        next_offset, next_before = (
            (self.end, self.total) if is_last else (self._offsets[number + 1], self._before[number + 1])
        )
        passed = (next_before - before) * max(0, position - offset) // max(1, next_offset - offset)
        return Backlog(max(1, self.total - before - passed), max(0, now_ms - self._times[number]))


def _times_of(segments: Sequence[SegmentFacts], begun_ms: int | None, now_ms: int) -> tuple[list[int], list[int]]:
    """Returns when the first and the last record of each segment were written. A segment begins when the one before it
    ends. Where that is not in memory, it counts as late as it can have been: no group is limited by a guess.
    """
    last, later = [0] * len(segments), now_ms
    for number in range(len(segments) - 1, -1, -1):
        known = segments[number].largest_timestamp
        later = min(later, known) if known is not None else later
        last[number] = later
    first = [last[0] if begun_ms is None else min(begun_ms, last[0]), *last[:-1]] if segments else []
    return first, last
