"""Where the record of each key is in the log of keys: an index in memory, bounded in number and in time. Pure.

Keys are forgotten by generations, the oldest first. So a key is remembered for `ms`, or until there are `keys_max`
later ones, each give or take a sixteenth.
"""

from collections import deque
from hashlib import blake2b

GENERATIONS = 16
HASH_BYTES = 16


class KeyTable:
    def __init__(self, keys_max: int, ms: int) -> None:
        self._keys_max = keys_max
        self._ms = ms
        self._generations: deque[_Generation] = deque()

    def __len__(self) -> int:
        return sum(len(one.offsets) for one in self._generations)

    @property
    def oldest_at(self) -> int | None:
        """The time of the oldest key; None if there is none."""
        return self._generations[0].first_at if self._generations else None

    def add(self, key: str, offset: int, at: int) -> None:
        """Adds a key that was written at `at`, in milliseconds, and forgets old ones."""
        newest = self._generations[-1] if self._generations else None
        if newest is None or newest.is_full(self._keys_max, self._ms, at):
            newest = _Generation(at)
            self._generations.append(newest)
        newest.offsets[hash_of(key)] = offset
        newest.last_at = max(newest.last_at, at)
        self.forget(at)

    def forget(self, now_ms: int) -> None:
        while self._generations and (self._generations[0].last_at + self._ms < now_ms or len(self) > self._keys_max):
            self._generations.popleft()

    def find(self, key: str) -> int | None:
        """Returns the offset of the record of a key; None if it is not known. Another key may have the same hash: the
        caller looks.
        """
        hashed = hash_of(key)
        for generation in reversed(self._generations):
            if (offset := generation.offsets.get(hashed)) is not None:
                return offset
        return None


class _Generation:
    __slots__ = ("first_at", "last_at", "offsets")

    def __init__(self, at: int) -> None:
        self.first_at = self.last_at = at
        self.offsets: dict[bytes, int] = {}

    def is_full(self, keys_max: int, ms: int, at: int) -> bool:
        return len(self.offsets) >= max(1, keys_max // GENERATIONS) or at - self.first_at > ms // GENERATIONS


def hash_of(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=HASH_BYTES).digest()
