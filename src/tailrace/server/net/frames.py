"""Splits the bytes from a socket into frames: four bytes of length, and then a request.

What arrives goes into a buffer that all connections share, and small requests are handled right there, uncopied. Only a
request that has not arrived whole gets a buffer of its own, which the rest is then received into: one of a few spare
ones, where one is free and large enough (fresh memory for each megabyte would cost more than the request), else one
that grows with what has arrived, so that a length that is only claimed costs little. Who has sent a large request most
likely sends another: what comes next of it goes into a spare one at once. A connection that is idle owns no buffer at
all.
"""

import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">i")
_LENGTH_AND_KEY = struct.Struct(">ih")

SCRATCH_BYTES = 256 << 10
LEAST_BYTES = 16 << 10  # of a buffer, where the request is not shorter
AHEAD = 4  # a buffer is at most so many times larger than what has arrived
SPARE_BYTES = (1 << 20) + (64 << 10)  # the batch that clients fill by default, and what stands around it
SPARES = 4


class BadFrame(Exception):
    """A length that no request of this kind has. There is no way to tell where the next one would begin."""


class SharedBuffers:
    """What all connections of a node receive into."""

    def __init__(self, scratch: int = SCRATCH_BYTES, spare: int = SPARE_BYTES, spares: int = SPARES) -> None:
        self.scratch = memoryview(bytearray(scratch))
        self._spare_bytes = spare
        self._spares = [bytearray() for _ in range(spares)]  # the one that was used last is the next

    def take(self, length: int) -> bytearray | None:
        """A spare one with room for so much, if any is free. Give it back."""
        if length > self._spare_bytes or not self._spares:
            return None
        return self._spares.pop() or bytearray(self._spare_bytes)

    def give(self, spare: bytearray) -> None:
        self._spares.append(spare)


class Frames:
    """One connection's. After every `received`, take frames with `next_frame`, and `keep` the rest."""

    __slots__ = (
        "_buffers",
        "_data",
        "_filled",
        "_first_bytes",
        "_is_large",
        "_length",
        "_limit_of",
        "_own",
        "_position",
        "_produce_max",
        "_room",
        "_scratch",
        "_spare",
        "_start",
    )

    def __init__(self, buffers: SharedBuffers, limit_of: Callable[[int], int], first_bytes: Callable[[], int]) -> None:
        """`limit_of` says how long a request with an API key may be, `first_bytes` how large a buffer begins at most
        for one that claims to be larger.
        """
        self._buffers = buffers
        self._scratch = self._room = buffers.scratch
        self._limit_of = limit_of
        self._produce_max = limit_of(0)
        self._first_bytes = first_bytes
        self._data: memoryview | None = None  # has arrived, and was not taken
        self._position = 0
        self._own: bytearray | None = None  # of the request that has not arrived whole
        self._spare: bytearray | None = None  # to be given back, once the request in it is handled
        self._start = 0  # of the request in it
        self._filled = 0
        self._length = 0
        self._is_large = False  # the last request was larger than the shared buffer

    @property
    def held_bytes(self) -> int:
        """Memory that this connection holds."""
        return (len(self._own) if self._own is not None else 0) + (len(self._data) if self._data is not None else 0)

    @property
    def is_amid(self) -> bool:
        """Whether a part of a request has arrived."""
        return self._own is not None or self._data is not None

    @property
    def is_waiting(self) -> bool:
        """Whether more of a request has to arrive, and there is none before it."""
        return self._own is not None and self._filled < self._length

    def room(self) -> memoryview:
        """Where to receive into."""
        if self._own is None:
            is_spare = self._is_large and self._data is None
            if is_spare and self._spare is None:
                self._spare = self._buffers.take(len(self._scratch))
            self._room = memoryview(self._spare) if is_spare and self._spare is not None else self._scratch
            return self._room
        if growth := self.growth:
            self._own.extend(bytes(growth))
        return memoryview(self._own)[self._start + self._filled : self._start + self._length]

    @property
    def growth(self) -> int:
        """How much memory `room` will take."""
        if self._own is None or self._filled < len(self._own):
            return 0
        return min(self._length, AHEAD * len(self._own)) - len(self._own)

    def only_frame(self, count: int) -> memoryview | None:
        """The request that is whole with the `count` bytes that were just put into the room, if nothing else has
        arrived. Who has handled it says so (`taken`); if not, the bytes are `received` as always, and its limit is
        looked at: that of a Produce, here, is for those that are known.
        """
        if self._own is not None:
            if self._filled + count != self._length:
                return None
            return memoryview(self._own)[self._start : self._start + self._length]
        if self._data is not None or not _LENGTH.size < count <= _LENGTH.size + self._produce_max:
            return None
        (length,) = _LENGTH.unpack_from(self._room)
        return self._room[_LENGTH.size : count] if length == count - _LENGTH.size else None

    def taken(self, length: int) -> bool:
        """The only frame, of this length, was handled: nothing is left of it. True where memory was held for it."""
        was_own, self._own = self._own is not None, None
        if self._spare is not None:
            self._is_large = length > len(self._scratch)
            self.release()
        return was_own

    def put_back(self, data: bytes) -> int:
        """Puts what the helper process has received of this connection into the room, as if it had just arrived."""
        assert not self.is_amid, "who asks has been given all that had arrived"
        self._room = self._scratch
        self._room[: len(data)] = data
        return len(data)

    def received(self, count: int) -> None:
        """So many bytes were put into the room."""
        if self._own is not None:
            self._filled += count
        elif self._data is None:
            self._data, self._position = self._room[:count], 0
        else:  # a few bytes of a length that was cut, or requests that had to wait
            rest = bytearray(self._data[self._position :]) + self._room[:count]
            self._data, self._position = memoryview(rest), 0

    def began_large(self) -> bool:
        """Whether what has arrived is the beginning of one large request, and nothing else, from a client that has
        sent such before: then it has its buffer, which the rest is to be received into. Raises BadFrame.
        """
        data = self._data
        if data is None or not self._is_large or self._position or len(data) < LEAST_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(data)
        return length > len(data) - _LENGTH.size and self.next_frame() is None

    def next_frame(self) -> memoryview | None:
        """The next whole request, without its length. Valid until the next `room`. Raises BadFrame."""
        if self._own is not None:
            return self._take_own()
        if self._data is None:
            return None
        start = self._position + _LENGTH.size
        left = len(self._data) - start
        if left < 2:  # not even its key
            return None
        length, key = _LENGTH_AND_KEY.unpack_from(self._data, self._position)
        if not 8 <= length <= (self._limit_of(key) if key else self._produce_max):
            raise BadFrame(f"a request of {length} bytes for API key {key}")
        self._is_large = length > len(self._scratch)
        if length > left:
            self._begin_own(length, start)
            return None
        self._position = start + length
        frame = self._data[start : self._position]
        if left == length:
            self._data = None
        return frame

    def _begin_own(self, length: int, start: int) -> None:
        assert self._data is not None
        arrived, self._data = self._data[start:], None
        self._length, self._filled = length, len(arrived)
        if self._spare is not None and arrived.obj is self._spare and start + length <= len(self._spare):
            self._own, self._start = self._spare, start  # it can go on where it has begun
            return
        before, self._spare = self._spare, self._buffers.take(length) if self._is_large else None
        self._own = self._spare if self._spare is not None else self._growing(length)
        self._own[: self._filled] = arrived
        self._start = 0
        if before is not None:
            self._buffers.give(before)

    def _growing(self, length: int) -> bytearray:
        ahead = min(self._first_bytes(), max(LEAST_BYTES, AHEAD * self._filled))
        return bytearray(min(length, max(self._filled, ahead)))

    def _take_own(self) -> memoryview | None:
        if self._own is None or self._filled < self._length:
            return None
        frame = memoryview(self._own)[self._start : self._start + self._length]
        self._own = None
        return frame

    def keep(self) -> None:
        """Copies what was not taken out of the shared buffers, which the next connection uses."""
        if self._data is not None and self._data.obj is self._room.obj:
            self._data, self._position = memoryview(bytearray(self._data[self._position :])), 0
        if self._own is None:
            self.release()

    def release(self) -> None:
        """Gives back what is not this connection's."""
        if self._spare is not None:
            self._buffers.give(self._spare)
            self._spare = self._own = None

    def close(self) -> None:
        """Lets go of all memory: what has arrived is not wanted any more."""
        self.release()
        self._own = self._data = None
        self._room = self._scratch
