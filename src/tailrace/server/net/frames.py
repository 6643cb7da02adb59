"""Splits the bytes from a socket into frames: four bytes of length, and then a request.

Bytes arrive in a buffer that all connections share, and small requests are handled right there, uncopied. Only a
request that has not arrived whole gets a buffer of its own, which receives the rest: one of a few spare buffers, if one
is free and large enough (allocating a megabyte for each request would cost more than the request), else a buffer that
grows with the bytes that have arrived, so that a false length costs little. A client that has sent a large request most
likely sends another: its next bytes are received into a spare buffer at once. An idle connection owns no buffer.
"""

import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">i")
_LENGTH_AND_KEY = struct.Struct(">ih")

SCRATCH_BYTES = 256 << 10
LEAST_BYTES = 16 << 10  # smallest buffer, unless the request is shorter
AHEAD = 4  # a buffer is at most this many times larger than the bytes that have arrived
SPARE_BYTES = (1 << 20) + (64 << 10)  # the default maximal batch of clients, and the request around it
SPARES = 4


class BadFrame(Exception):
    """A length that no valid request of this kind has. The next frame cannot be found after that."""


class SharedBuffers:
    """The buffers that all connections of a node receive into."""

    def __init__(self, scratch: int = SCRATCH_BYTES, spare: int = SPARE_BYTES, spares: int = SPARES) -> None:
        self.scratch = memoryview(bytearray(scratch))
        self._spare_bytes = spare
        self._spares = [bytearray() for _ in range(spares)]  # a stack: the buffer used last is used next

    def take(self, length: int) -> bytearray | None:
        """Takes a spare buffer with room for `length` bytes, if any is free. Give it back."""
        if length > self._spare_bytes or not self._spares:
            return None
        return self._spares.pop() or bytearray(self._spare_bytes)

    def give(self, spare: bytearray) -> None:
        self._spares.append(spare)


class Frames:
    """The frames of one connection. After every `received`, take frames with `next_frame`, and `keep` the rest."""

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
        """`limit_of` returns the maximal length of a request by API key; `first_bytes` the largest initial buffer of a
        request that claims to be larger.
        """
        self._buffers = buffers
        self._scratch = self._room = buffers.scratch
        self.limit_by(limit_of)
        self._first_bytes = first_bytes
        self._data: memoryview | None = None  # arrived, and not taken
        self._position = 0
        self._own: bytearray | None = None  # for a request that has not arrived whole
        self._spare: bytearray | None = None  # given back once the request in it is handled
        self._start = 0  # of the request in it
        self._filled = 0
        self._length = 0
        self._is_large = False  # the last request was larger than the shared buffer

    def limit_by(self, limit_of: Callable[[int], int]) -> None:
        """Replaces the maximal lengths, of requests that have not begun to arrive."""
        self._limit_of = limit_of
        self._produce_max = limit_of(0)

    @property
    def held_bytes(self) -> int:
        """The memory that this connection holds."""
        return (len(self._own) if self._own is not None else 0) + (len(self._data) if self._data is not None else 0)

    @property
    def is_amid(self) -> bool:
        """Whether part of a request has arrived."""
        return self._own is not None or self._data is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the next request has not arrived whole."""
        return self._own is not None and self._filled < self._length

    def room(self) -> memoryview:
        """Returns the buffer to receive into."""
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
        """How much memory `room` will allocate."""
        if self._own is None or self._filled < len(self._own):
            return 0
        return min(self._length, AHEAD * len(self._own)) - len(self._own)

    def only_frame(self, count: int) -> memoryview | None:
        """Returns the request that the `count` bytes just received complete, if nothing else has arrived. The caller
        calls `taken` after handling it; otherwise it passes the bytes to `received` as usual, which checks the length
        limit. That of Produce is not checked here: templates cover it.
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
        """Drops the only frame, of this length, which was handled. Returns True if memory was held for it."""
        was_own, self._own = self._own is not None, None
        if self._spare is not None:
            self._is_large = length > len(self._scratch)
            self.release()
        return was_own

    def put_back(self, data: bytes) -> int:
        """Puts bytes that the helper process received on this connection into the room, as if they had just arrived."""
        assert not self.is_amid, "all received bytes were handed off before"
        self._room = self._scratch
        self._room[: len(data)] = data
        return len(data)

    def received(self, count: int) -> None:
        """Notes that `count` bytes were received into the room."""
        if self._own is not None:
            self._filled += count
        elif self._data is None:
            self._data, self._position = self._room[:count], 0
        else:  # part of a length, or requests that had to wait
            rest = bytearray(self._data[self._position :]) + self._room[:count]
            self._data, self._position = memoryview(rest), 0

    def began_large(self) -> bool:
        """Whether the bytes are the beginning of one large request, and nothing else, from a client that has sent a
        large one before. Then the request has its buffer, which receives the rest. Raises BadFrame.
        """
        data = self._data
        if data is None or not self._is_large or self._position or len(data) < LEAST_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(data)
        return length > len(data) - _LENGTH.size and self.next_frame() is None

    def next_frame(self) -> memoryview | None:
        """Returns the next whole request, without its length. Valid until the next `room`. Raises BadFrame."""
        if self._own is not None:
            return self._take_own()
        if self._data is None:
            return None
        start = self._position + _LENGTH.size
        left = len(self._data) - start
        if left < 2:  # not even the API key
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
            self._own, self._start = self._spare, start  # the request continues in the same buffer
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
        """Copies bytes that were not taken out of the shared buffers, which the next connection uses."""
        if self._data is not None and self._data.obj is self._room.obj:
            self._data, self._position = memoryview(bytearray(self._data[self._position :])), 0
        if self._own is None:
            self.release()

    def release(self) -> None:
        """Gives back buffers that are not this connection's."""
        if self._spare is not None:
            self._buffers.give(self._spare)
            self._spare = self._own = None

    def close(self) -> None:
        """Releases all memory: the bytes that have arrived are dropped."""
        self.release()
        self._own = self._data = None
        self._room = self._scratch
