"""The newest offset of each key, in memory that is bounded to the byte.

A hash table on two plain buffers, 24 bytes a slot: the 16-byte digest of a key and its offset. A dict would take six
times as much. The digest is BLAKE2b, so keys that collide, and so delete each other, cannot be constructed. Collisions
by chance are too improbable to matter.
"""

from hashlib import blake2b

SLOT_BYTES = 24
DIGEST_BYTES = 16


class KeyOffsets:
    def __init__(self, memory_bytes: int, load_factor: float = 0.9, keys_expected: int | None = None) -> None:
        """Takes at most `memory_bytes`, and less if `keys_expected` needs less."""
        slots = max(16, memory_bytes // SLOT_BYTES)
        if keys_expected is not None:
            slots = min(slots, max(16, int(keys_expected / load_factor) + 16))
        self._slots = _prime_at_most(slots)  # a prime: every step size visits all slots
        # One slot stays free: it ends the search for an unknown key.
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self._digests = bytearray(DIGEST_BYTES * self._slots)
        # The offset plus 1; 0 marks a free slot. Pages that were never written take no memory.
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
        """Sets the newest offset of a key. Offsets must come in ascending order. There must be room for the key."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        slot = self._slot_of(digest)
        if not self._offsets[slot]:
            assert self._count < self.capacity, "no room: the caller checks this before `put`"
            self._digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = digest
            self._count += 1
        self._offsets[slot] = offset + 1

    def newest(self, key: bytes) -> int:
        """Returns the newest offset of the key, or -1 if the key is unknown."""
        return self._offsets[self._slot_of(blake2b(key, digest_size=DIGEST_BYTES).digest())] - 1

    def _slot_of(self, digest: bytes) -> int:
        """Returns the slot of the digest, or the free slot where it would go."""
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
