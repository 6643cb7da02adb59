"""The newest offset of each key, in memory that is bounded to the byte.

A hash table of our own on two plain buffers, 24 bytes a slot: the 16-byte digest of a key and its offset. A dict would
take six times as much. The digest is BLAKE2b: nobody can make up two keys that share one, and so make one delete the
other. Two digests that are equal by chance are not expected in the life of the universe.
"""

from hashlib import blake2b

SLOT_BYTES = 24
DIGEST_BYTES = 16


class KeyOffsets:
    def __init__(self, memory_bytes: int, load_factor: float = 0.9, keys_expected: int | None = None) -> None:
        """Takes `memory_bytes` at most, or less where no more keys are expected than so many."""
        slots = max(16, memory_bytes // SLOT_BYTES)
        if keys_expected is not None:
            slots = min(slots, max(16, int(keys_expected / load_factor) + 16))
        self._slots = _prime_at_most(slots)  # so that every step leads through all slots
        # One slot stays free, where a search for a key that is not there ends.
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self._digests = bytearray(DIGEST_BYTES * self._slots)
        # One more than the offset; 0 is a slot that is free. Memory that nobody has touched takes none.
        self._offsets = memoryview(bytearray(8 * self._slots)).cast("q")
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        return SLOT_BYTES * self._slots

    def has_room_for(self, count: int) -> bool:
        return self._count + count <= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Offsets come in order: the last one is the newest. There must be room."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        slot = self._slot_of(digest)
        if not self._offsets[slot]:
            assert self._count < self.capacity, "whoever puts looks first whether there is room"
            self._digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = digest
            self._count += 1
        self._offsets[slot] = offset + 1

    def newest(self, key: bytes) -> int:
        """-1 where nothing is known of the key."""
        return self._offsets[self._slot_of(blake2b(key, digest_size=DIGEST_BYTES).digest())] - 1

    def _slot_of(self, digest: bytes) -> int:
        """Where the digest is, or the free slot that it would get."""
        slots, offsets, digests = self._slots, self._offsets, self._digests
        number = int.from_bytes(digest)
        slot = number % slots
        step = 0
        while offsets[slot] and digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] != digest:
            if not step:
                step = 1 + (number >> 64) % (slots - 1)
            slot = (slot + step) % slots
        return slot


def _prime_at_most(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
