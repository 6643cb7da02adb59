"""The order of records with the same key: each may be delivered when the one before it is finished.

Records are added in the order of their offsets, all that are not finished. The first one of a key that is not finished
is its head; the others wait behind it. Only hashes of keys are kept: two keys of the same hash are in one order, too.
"""

from collections import deque
from collections.abc import Iterable, Iterator


class KeyOrder:
    def __init__(self, start: int) -> None:
        self.known_to = start  # all records before that are not finished have been added
        self._keys: dict[int, int] = {}  # the hash of each record's key, by offset
        self._heads: dict[int, int] = {}  # by hash
        self._waiting: dict[int, deque[int]] = {}  # likewise; without the head

    def add(self, records: Iterable[tuple[int, int]], known_to: int) -> Iterator[int]:
        """Adds records by offset and the hash of the key. Yields those that have to wait."""
        for offset, key in records:
            self._keys[offset] = key
            if self._heads.setdefault(key, offset) != offset:
                self._waiting.setdefault(key, deque()).append(offset)
                yield offset
        self.known_to = max(self.known_to, known_to)

    def must_wait(self, offset: int) -> bool:
        key = self._keys.get(offset)
        return key is not None and self._heads[key] != offset

    def waiting_in(self, first: int, last: int) -> list[int]:
        """Returns the records of a range that have to wait, in order."""
        return [offset for offset in self._known_in(first, last) if self.must_wait(offset)]

    def finish(self, first: int, last: int) -> list[int]:
        """Records of a range are finished. Returns those behind them that need to wait no more."""
        freed = []
        for offset in self._known_in(first, last):
            key = self._keys.pop(offset)
            if self._heads[key] == offset and (head := self._next_head(key)) is not None:
                freed.append(head)
        return [offset for offset in freed if offset in self._keys]

    def _known_in(self, first: int, last: int) -> list[int]:
        if not self._keys:
            return []
        if last - first < len(self._keys):
            return [offset for offset in range(first, last + 1) if offset in self._keys]
        return sorted(offset for offset in self._keys if first <= offset <= last)

    def _next_head(self, key: int) -> int | None:
        waiting = self._waiting.get(key)
        while waiting:
            offset = waiting.popleft()
            if not waiting:
                del self._waiting[key]
            if offset in self._keys:
                self._heads[key] = offset
                return offset
        del self._heads[key]
        return None

    def __len__(self) -> int:
        return len(self._keys)
