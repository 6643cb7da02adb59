"""The checksum file of a segment: checksums over its raw bytes, headers included, and what a clean start needs.

A batch's own CRC does not cover its offset, length and epoch, and does not reveal a missing batch. So a sealed segment
gets a small file beside it with a CRC-32C for every MiB. It covers a *prefix* of the segment: as segments only grow,
checksums written at a clean stop stay valid when more is appended. docs/FORMAT.md has the layout.

If the file is missing (a segment written by Kafka), batches are checked by their own CRC. If it is damaged, it is
ignored.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from tailrace.log.disk.interface import Data, File
from tailrace.records.checksum import crc32c

CHUNK_BYTES = 1 << 20

_MAGIC = b"TRSM"
_VERSION = 1
_HEAD = struct.Struct(">4sHBxIQqqqQIQIQII")
_WORD = struct.Struct(">I")


class Gaps(IntEnum):
    """Whether offsets may be missing between the batches of a segment, and why."""

    NONE = 0
    COMPACTED = 1
    REPAIRED = 2
    UNKNOWN = 3  # a segment written by Kafka, which may have been compacted


class Prefix(NamedTuple):
    """The size of a prefix of a derived file, and its checksum."""

    size: int = 0
    crc: int = 0

    @classmethod
    def of(cls, data: Data) -> "Prefix":
        return cls(len(data), crc32c(data))

    def matches(self, data: Data) -> bool:
        return len(data) >= self.size and crc32c(memoryview(data)[: self.size]) == self.crc


class ChunkChecksums:
    """A checksum for each MiB, updated as bytes are appended."""

    def __init__(self) -> None:
        self._size = 0
        self._checksums: list[int] = []

    @classmethod
    def resume(cls, checksums: "SegmentChecksums") -> "ChunkChecksums":
        """Returns checksums that continue behind the last byte which `checksums` covers."""
        resumed = cls()
        resumed._size, resumed._checksums = checksums.log_size, list(checksums.chunks)
        return resumed

    @property
    def size(self) -> int:
        """The position behind the last byte summed."""
        return self._size

    @property
    def checksums(self) -> tuple[int, ...]:
        return tuple(self._checksums)

    def read_up_to(self, file: File, end: int) -> None:
        """Reads `file` up to `end` and adds its bytes to the checksums."""
        while self._size < end:
            self.update(file.read_at(self._size, min(CHUNK_BYTES, end - self._size)))

    def update(self, data: Data) -> None:
        room = -self._size % CHUNK_BYTES
        if 0 < len(data) <= room:  # nearly every append ends inside the chunk where it begins
            self._checksums[-1] = crc32c(data, self._checksums[-1])
            self._size += len(data)
            return
        view = memoryview(data)
        if room:
            self._checksums[-1] = crc32c(view[:room], self._checksums[-1])
        for position in range(room, len(view), CHUNK_BYTES):
            self._checksums.append(crc32c(view[position : position + CHUNK_BYTES]))
        self._size += len(view)


class SegmentChecksums(NamedTuple):
    """The contents of a `.sums` file."""

    log_size: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    chunks: tuple[int, ...]
    gaps: Gaps = Gaps.NONE
    offset_index: Prefix = Prefix()
    time_index: Prefix = Prefix()
    transaction_index: Prefix = Prefix()

    def chunk_is_intact(self, number: int, data: Data) -> bool:
        """Returns whether `data` is exactly chunk `number`. The last chunk ends at `log_size`."""
        return crc32c(data) == self.chunks[number]

    def chunk_bounds(self, number: int) -> tuple[int, int]:
        return number * CHUNK_BYTES, min((number + 1) * CHUNK_BYTES, self.log_size)

    def encode(self) -> bytes:
        head = _HEAD.pack(
            _MAGIC, _VERSION, self.gaps, CHUNK_BYTES,
            self.log_size, self.next_offset, self.max_timestamp, self.max_timestamp_offset,
            self.offset_index.size, self.offset_index.crc,
            self.time_index.size, self.time_index.crc,
            self.transaction_index.size, self.transaction_index.crc,
            len(self.chunks),
        )  # fmt: skip
        body = head + b"".join(map(_WORD.pack, self.chunks))
        return body + _WORD.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes) -> "SegmentChecksums | None":
        """Decodes a checksum file. Returns None if it is truncated, damaged or of an unknown version."""
        if len(data) < _HEAD.size + _WORD.size or crc32c(data[:-4]) != _WORD.unpack_from(data, len(data) - 4)[0]:
            return None
        magic, version, gaps, chunk_bytes, *numbers, chunk_count = _HEAD.unpack_from(data)
        if (magic, version, chunk_bytes) != (_MAGIC, _VERSION, CHUNK_BYTES) or gaps not in set(Gaps):
            return None
        if len(data) != _HEAD.size + _WORD.size * (chunk_count + 1):
            return None
        log_size, next_offset, max_timestamp, max_timestamp_offset, *prefixes = numbers
        return cls(
            log_size=log_size,
            next_offset=next_offset,
            max_timestamp=max_timestamp,
            max_timestamp_offset=max_timestamp_offset,
            chunks=struct.unpack_from(f">{chunk_count}I", data, _HEAD.size),
            gaps=Gaps(gaps),
            offset_index=Prefix(*prefixes[0:2]),
            time_index=Prefix(*prefixes[2:4]),
            transaction_index=Prefix(*prefixes[4:6]),
        )
