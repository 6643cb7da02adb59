"""A set of byte ranges: which parts of a file have been checked."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Ranges:
    """Half-open ranges, merged where they touch, in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Afterwards everything from `start` to `end` is covered."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def cover(self, start: int, end: int) -> bool:
        """Whether all of `start` to `end` is covered."""
        number = bisect_right(self._starts, start) - 1
        return start >= end or (number >= 0 and end <= self._ends[number])

    def cut(self, at: int) -> None:
        """Afterwards nothing at `at` or beyond is covered."""
        number = bisect_left(self._starts, at)
        del self._starts[number:], self._ends[number:]
        if self._ends and self._ends[-1] > at:
            self._ends[-1] = at

    def remove(self, start: int, end: int) -> None:
        """Afterwards nothing from `start` to `end` is covered."""
        for low, high in list(self):
            if low < end and high > start and start < end:
                number = bisect_left(self._starts, low)
                left = [(one, other) for one, other in ((low, start), (end, high)) if one < other]
                self._starts[number : number + 1] = [one for one, _ in left]
                self._ends[number : number + 1] = [other for _, other in left]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)
