"""Records that wait for their time, to be retried or delivered later.

Ranges of offsets are kept in buckets of 50 ms, for the next ten minutes, and of 10 s beyond. A range of the latter
moves on into one of the former when that comes up, so none is late by more than 50 ms. Each costs 24 bytes.
"""

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush

from tailrace.broker.queues.partition.states import OffsetRange

_FINE_MS, _COARSE_MS = 50, 10_000
_NEAR_MS = 600_000
_WORDS = 3  # of a range: first, last, when it is due


class Parking:
    def __init__(self) -> None:
        self.ranges = 0
        self._buckets: dict[int, array[int]] = {}
        self._times: list[int] = []

    def park(self, first: int, last: int, due_ms: int, now_ms: int) -> None:
        is_near = due_ms - now_ms < _NEAR_MS
        time = -(-due_ms // _FINE_MS) * _FINE_MS if is_near else due_ms // _COARSE_MS * _COARSE_MS
        bucket = self._buckets.get(time)
        if bucket is None:
            bucket = self._buckets[time] = array("q")
            heappush(self._times, time)
        bucket.extend((first, last, due_ms))
        self.ranges += 1

    @property
    def next_due(self) -> int | None:
        return self._times[0] if self._times else None

    def due(self, now_ms: int, ranges_max: int) -> Iterator[OffsetRange]:
        """Removes and yields ranges that are due, at most that many."""
        for _ in range(ranges_max):
            if not self._times or self._times[0] > now_ms:
                return
            bucket = self._buckets[self._times[0]]
            first, last, due_ms = bucket[-_WORDS:]
            del bucket[-_WORDS:]
            self.ranges -= 1
            if not bucket:
                del self._buckets[heappop(self._times)]
            if due_ms <= now_ms:
                yield OffsetRange(first, last)
            else:
                self.park(first, last, due_ms, now_ms)
