"""Responses to appends that wait for some time, to slow a producer down. The records are appended, and flushed.

A response leaves when its time has come, counted from the arrival of its request, and what it acknowledges is on disk.
Times never add up: of several partitions the longest counts, and each request counts from its own arrival. The
connection is read meanwhile.
"""

from heapq import heappop, heappush
from typing import Any

from tailrace.broker.core.delayed import DelayedResponse, DependentResponse


class DelayedAck(DependentResponse[Any]):
    """A response that leaves when `first` is there, and `end_delay` has been called."""

    __slots__ = ("_held", "_is_due")

    def __init__(self, first: DelayedResponse[Any]) -> None:
        super().__init__(first)
        self._held: list[Any] = []
        self._is_due = False
        first.when_resolved(self._answered)

    def _answered(self, answer: Any) -> None:
        if self._is_due:
            self.resolve(answer)
        else:
            self._held.append(answer)

    def end_delay(self) -> None:
        self._is_due = True
        for answer in self._held:
            self.resolve(answer)
        self._held.clear()


class DelayedAcks:
    """All that wait, by the steady clock."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, DelayedAck]] = []
        self._number = 0

    @property
    def next_deadline(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def delay(self, answer: object, until_ms: int) -> DelayedAck:
        """Delays a response, or a DelayedResponse."""
        first = answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer)
        delayed, self._number = DelayedAck(first), self._number + 1
        heappush(self._queue, (until_ms, self._number, delayed))
        return delayed

    def advance(self, steady_ms: int) -> None:
        while self._queue and self._queue[0][0] <= steady_ms:
            heappop(self._queue)[2].end_delay()
