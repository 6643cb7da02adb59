"""Deadlines of groups and members, by name, on a clock that the coordinator sets.

Most deadlines are extended again and again, with every heartbeat. That costs one entry in a dictionary: the queue holds
one entry for each name, and an entry that comes up too early is put back.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

LEFT_MAX = 1_000


class Timer(NamedTuple):
    """The name of a deadline: its kind, its group, and its member if it concerns one."""

    group_id: str
    kind: str
    member_id: str = ""


class Timers:
    def __init__(self) -> None:
        self.now = 0  # milliseconds of a clock that never jumps
        self._deadlines: dict[Timer, int] = {}
        self._queue: list[tuple[int, Timer]] = []
        self._queued: dict[Timer, int] = {}  # the earliest queue entry of each name

    @property
    def next_deadline(self) -> int | None:
        """When something may be due, at the earliest."""
        while self._queue and self._queued.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def set(self, timer: Timer, after_ms: int) -> None:
        """Sets a deadline that far from now, in place of its previous one."""
        deadline = self.now + after_ms
        self._deadlines[timer] = deadline
        place = self._queued.get(timer)
        if place is None or deadline < place:
            self._queued[timer] = deadline
            heappush(self._queue, (deadline, timer))

    def is_set(self, timer: Timer) -> bool:
        return timer in self._deadlines

    def cancel(self, timer: Timer) -> None:
        self._deadlines.pop(timer, None)
        if len(self._queue) > 2 * len(self._deadlines) + LEFT_MAX:  # too many entries of cancelled deadlines
            self._queued = dict(self._deadlines)
            self._queue = sorted((deadline, timer) for timer, deadline in self._deadlines.items())

    def due(self) -> Iterator[Timer]:
        """Yields and removes the deadlines that are due, in order. One that is extended or cancelled meanwhile is
        skipped.
        """
        while (place := self.next_deadline) is not None and place <= self.now:
            _, timer = heappop(self._queue)
            del self._queued[timer]
            deadline = self._deadlines.get(timer)
            if deadline is None:
                continue
            if deadline == place:
                del self._deadlines[timer]
                yield timer
            else:  # it was extended
                self._queued[timer] = deadline
                heappush(self._queue, (deadline, timer))

    def __len__(self) -> int:
        return len(self._deadlines)
