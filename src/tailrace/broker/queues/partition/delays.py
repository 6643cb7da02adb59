"""Until when released records wait for whose delay a member has chosen. Pure.

That records wait is the business of `parking`. This remembers the chosen ends, so that a snapshot can have them: unlike
the delays of a group's configs, nothing else says them.
"""

from collections.abc import Iterator

from tailrace.broker.queues.partition.states import AS_CONFIGURED


class ChosenDelays:
    """An offset stays known until its record is released again, or finished."""

    def __init__(self) -> None:
        self._due: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, first: int, last: int, due_ms: int) -> None:
        self._due.update(dict.fromkeys(range(first, last + 1), due_ms))

    def forget(self, first: int, last: int) -> None:
        for offset in self._known_in(first, last):
            del self._due[offset]

    def split(self, first: int, last: int, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """Yields ranges that together are the given one, each with the delay that is left of a chosen one."""
        begin = first
        for offset in sorted(self._known_in(first, last)):
            left_ms = self._due[offset] - now_ms
            if left_ms <= 0:
                continue
            if begin < offset:
                yield begin, offset - 1, AS_CONFIGURED
            yield offset, offset, left_ms
            begin = offset + 1
        if begin <= last:
            yield begin, last, AS_CONFIGURED

    def _known_in(self, first: int, last: int) -> list[int]:
        if last - first < len(self._due):
            return [offset for offset in range(first, last + 1) if offset in self._due]
        return [offset for offset in self._due if first <= offset <= last]
