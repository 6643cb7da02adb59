"""Slices: whole batches of one log that a server can send without decoding or copying them, and where batches end.

A slice pins the file it lies in, so that it can be read to its end although the segment is deleted or its
descriptor wanted elsewhere. The code that gets one must `release` it.
"""

import errno
from collections.abc import Callable
from typing import Protocol

from tailrace.log.disk.interface import Data, File
from tailrace.records.batch import EXTENT, HEADER_SIZE, LENGTH_END, LENGTH_MIN

HEADERS_BYTES = 8192  # read at a time when only headers are wanted: two index intervals


class Slice(Protocol):
    """What the layers above know of it: nothing here says that there is a file."""

    @property
    def length(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """The offset behind the last record of the slice: where to read on."""

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of the slice; may wait for a disk, and may be called from any thread."""

    def read_cached(self, start: int = 0, size: int | None = None) -> Data | None:
        """The same, at once, or None where that would wait."""

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        """Sends up to `size` bytes to a socket without passing them through this process; says how many went."""

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        """The same, at once, or None where that would wait."""

    def read_ahead(self, start: int, size: int) -> bool:
        """Afterwards these bytes, and some behind them, are on their way from the disk. Says if they were there."""

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
            raise EOFError(f"{self._pinned.path} has become shorter while it was being read")
        return data

    def read_cached(self, start: int = 0, size: int | None = None) -> Data | None:
        return self._pinned.read_cached_at(self._position + start, self._wanted(start, size))

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        return self._pinned.send_to(descriptor, self._position + start, self._wanted(start, size))

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        file = self._file
        assert file is not None, "the slice was released"  # said again: a large answer comes here many times
        return file.send_cached_to(descriptor, self._position + start, min(size, self.length - start))

    def read_ahead(self, start: int, size: int) -> bool:
        return self._pinned.read_ahead(self._position + start, size)

    def place(self) -> tuple[int, int]:
        """The descriptor of its file, and where it begins there: for another process, as long as it is not released."""
        return self._pinned.descriptor(), self._position

    def part(self, position: int, length: int) -> "FileSlice":
        """Another slice, of bytes of the same file."""
        return FileSlice(self._pinned, position, length, self.next_offset)

    def _wanted(self, start: int, size: int | None) -> int:
        left = self.length - start
        return left if size is None else min(size, left)

    @property
    def _pinned(self) -> File:
        assert self._file is not None, "the slice was released"
        return self._file

    def release(self) -> None:
        """Once is enough; again does no harm."""
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
    """How far whole batches go from the one at `start`: to `wanted` at most, but that one at least, if it ends before
    `limit`. One of them begins at `position`, where the look begins. The position where they end, and the offset that
    follows: `start` and -1 where there is none. Raises OSError for bytes that cannot be a batch, however sound they
    were once.
    """
    first, next_offset = position, -1
    window: Data = b""
    while position < wanted:
        if len(window) - (position - first) < HEADER_SIZE:
            first, window = position, read(position, HEADERS_BYTES)
        if len(window) < HEADER_SIZE:
            raise OSError(errno.EIO, f"the file ends amid a batch at {position}")
        base_offset, length, last_offset_delta = EXTENT.unpack_from(window, position - first)
        if length < LENGTH_MIN:
            raise OSError(errno.EIO, f"a batch of an impossible length at {position}")
        end = position + LENGTH_END + length
        if end > (wanted if position > start else limit):
            return position, base_offset if next_offset < 0 < position - start else next_offset
        position, next_offset = end, base_offset + last_offset_delta + 1
    return position, next_offset
