"""Slices: whole batches of one log that a server can send without decoding or copying them, and where batches end.

A slice pins its file, so that it can be read to its end even if the segment is deleted or descriptors run out. The code
that gets a slice must `release` it.
"""

import errno
from collections.abc import Callable
from typing import Protocol

from tailrace.log.disk.interface import Data, File
from tailrace.records.batch import EXTENT, HEADER_SIZE, LENGTH_END, LENGTH_MIN

HEADERS_BYTES = 8192  # read at a time when only headers are wanted: two index intervals


class Slice(Protocol):
    """What upper layers know of a slice: they do not depend on files."""

    @property
    def length(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """The offset behind the last record of the slice: where the reader continues."""

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Returns bytes of the slice. May wait for a disk, and may be called from any thread."""

    def read_cached(self, start: int = 0, size: int | None = None) -> Data | None:
        """Reads like `read`, but returns None where that would wait for the disk."""

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        """Sends up to `size` bytes to a socket without copying them through this process. Returns how many
        were sent.
        """

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        """Sends like `send_to`, but returns None where that would wait for the disk."""

    def read_ahead(self, start: int, size: int) -> bool:
        """Starts reading these bytes, and some behind them, into the page cache. Returns whether they were cached
        already.
        """

    def release(self) -> None: ...


class FileSlice:
    __slots__ = ("_file", "_position", "length", "next_offset")

    def __init__(self, file: File, position: int, length: int, next_offset: int) -> None:
        file.pin()
        self._file: File | None = file
        self._position = position
        self.length = length
        self.next_offset = next_offset

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        wanted = self._wanted(start, size)
        data = self._pinned.read_at(self._position + start, wanted)
        if len(data) != wanted:
            raise EOFError(f"{self._pinned.path} was truncated while it was being read")
        return data

    def read_cached(self, start: int = 0, size: int | None = None) -> Data | None:
        return self._pinned.read_cached_at(self._position + start, self._wanted(start, size))

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        return self._pinned.send_to(descriptor, self._position + start, self._wanted(start, size))

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        file = self._file
        assert file is not None, "the slice was released"  # not a helper: a large response calls this many times
        return file.send_cached_to(descriptor, self._position + start, min(size, self.length - start))

    def read_ahead(self, start: int, size: int) -> bool:
        return self._pinned.read_ahead(self._position + start, size)

    def place(self) -> tuple[int, int]:
        """The descriptor of its file, and its position there, for another process; valid until the slice is
        released.
        """
        return self._pinned.descriptor(), self._position

    def part(self, position: int, length: int) -> "FileSlice":
        """Returns another slice, of bytes of the same file."""
        return FileSlice(self._pinned, position, length, self.next_offset)

    def piece(self, start: int, length: int) -> "FileSlice":
        """Returns another slice, of some of these bytes."""
        return self.part(self._position + start, length)

    def _wanted(self, start: int, size: int | None) -> int:
        left = self.length - start
        return left if size is None else min(size, left)

    @property
    def _pinned(self) -> File:
        assert self._file is not None, "the slice was released"
        return self._file

    def release(self) -> None:
        """Releases the file. A second call does nothing."""
        if self._file is not None:
            self._file.unpin()
            self._file = None

    def __enter__(self) -> "FileSlice":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def end_of_whole_batches(
    read: Callable[[int, int], Data], start: int, position: int, wanted: int, limit: int
) -> tuple[int, int]:
    """Finds the end of whole batches from the one at `start`: `wanted` at most, but at least that one, if it ends
    before `limit`. The search begins at the batch at `position`. Returns the position where they end, and the next
    offset; `start` and -1 if there is none. Raises OSError for bytes that cannot be a batch, even if they were checked
    before.
    """
    first, next_offset = position, -1
    window: Data = b""
    while position < wanted:
        if len(window) - (position - first) < HEADER_SIZE:
            first, window = position, read(position, HEADERS_BYTES)
        if len(window) < HEADER_SIZE:
            raise OSError(errno.EIO, f"the file ends inside a batch at {position}")
        base_offset, length, last_offset_delta = EXTENT.unpack_from(window, position - first)
        if length < LENGTH_MIN:
            raise OSError(errno.EIO, f"a batch with an invalid length at {position}")
        end = position + LENGTH_END + length
        if end > (wanted if position > start else limit):
            return position, base_offset if next_offset < 0 < position - start else next_offset
        position, next_offset = end, base_offset + last_offset_delta + 1
    return position, next_offset
