"""One record batch, format v2: its header, its CRC, and the fields that a broker stamps.

A batch is 61 bytes of header and then its records, perhaps compressed. Everything on the hot path needs the header
alone:

     0  base offset            int64     the batch's offset in the log; stamped by the broker
     8  length                 int32     of all that follows this field
    12  partition leader epoch int32     stamped by the broker
    16  magic                  int8      2
    17  CRC-32C                uint32    over everything from the attributes to the end of the batch
    21  attributes             int16     codec (bits 0-2), log-append time (3), transactional (4), control (5), ...
    23  last offset delta      int32
    27  base timestamp         int64
    35  max timestamp          int64
    43  producer id            int64
    51  producer epoch         int16
    53  base sequence          int32
    57  record count           int32

Offset and epoch lie outside the CRC, which is what lets a broker stamp them without touching the rest. All
functions work on views and copy nothing; those that stamp need a writable buffer. A position is where a batch
begins in its buffer.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tailrace.records.checksum import crc32c
from tailrace.records.errors import CorruptBatch, TruncatedBatch

Buffer = bytes | bytearray | memoryview

MAGIC = 2
HEADER_SIZE = 61
LENGTH_END = 12  # base offset and length: enough to know the size of a batch
CRC_START = 21  # the first byte the CRC covers
LENGTH_MIN = HEADER_SIZE - LENGTH_END

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER = -1
NO_SEQUENCE = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
EXTENT = struct.Struct(">qi11xi")  # base offset, length, last offset delta: enough to skip a batch
_STAMPED = struct.Struct(">qii")  # offset, length, epoch
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. Sequences wrap after 2^31 - 1. NO_SEQUENCE if the producer is not
        idempotent.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers of a compacted batch may be removed: compaction keeps this in the base
        timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


_as_header: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)
"""Like `BatchHeader._make`, but without a call of a Python function: it runs for every batch."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`, unchecked. Raises TruncatedBatch if there are not 61 bytes."""
    try:
        return _as_header(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _truncated_header(buffer, position) from None


def _truncated_header(buffer: Buffer, position: int) -> TruncatedBatch:
    return TruncatedBatch(f"{len(buffer) - position} bytes, but a header needs {HEADER_SIZE}")


def check_header(header: BatchHeader) -> None:
    """Raises CorruptBatch unless every field is in its legal range."""
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}, expected {MAGIC}")
    if header.length < LENGTH_MIN:
        raise CorruptBatch(f"length {header.length} is below the minimum of {LENGTH_MIN}")
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise CorruptBatch(f"invalid base offset {header.base_offset} or last offset delta {header.last_offset_delta}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(f"{header.record_count} records in {header.last_offset_delta + 1} offsets")


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of a whole, valid and intact batch. Raises CorruptBatch, which names the failed check."""
    try:
        header = _as_header(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _truncated_header(buffer, position) from None
    base_offset, length, _, magic, crc, _, delta, _, _, _, _, _, count = header
    if magic != MAGIC or length < LENGTH_MIN or base_offset < 0 or delta < 0 or not 0 <= count <= delta + 1:
        check_header(header)  # raises with the reason
    end = position + LENGTH_END + length
    if end > len(buffer):
        raise TruncatedBatch(f"{len(buffer) - position} bytes of a batch of {header.size}")
    computed = crc32c(memoryview(buffer)[position + CRC_START : end])
    if computed != crc:
        raise CorruptBatch(f"CRC-32C is {computed:#010x}, but the header has {crc:#010x}")
    return header


def split(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields each batch in `buffer` with its position, checked. Raises CorruptBatch at the first that is not whole and
    intact.
    """
    position, end = 0, len(buffer)
    view = memoryview(buffer)
    while position < end:
        header = check(view, position)
        yield position, header
        position += LENGTH_END + header.length


def stamp(buffer: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Stamps the batch in `buffer`, which has this header, with its offset and leader epoch. The CRC does not change.
    Returns the new header.
    """
    stamped = base_offset, header[1], leader_epoch
    _STAMPED.pack_into(buffer, 0, *stamped)
    return _as_header(stamped + header[3:])


def set_log_append_time(buffer: bytearray | memoryview, header: BatchHeader, timestamp: int) -> BatchHeader:
    """Sets `timestamp` as the log-append time of all records of the batch in `buffer`, which has this header, and
    updates the CRC. Returns the new header.
    """
    _ATTRIBUTES.pack_into(buffer, 21, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, 35, timestamp)
    seal(buffer)
    return read_header(buffer)


def set_codec(buffer: bytearray, codec: int) -> None:
    """Sets the codec and the length of the one batch in `buffer`, after its records were compressed, and updates the
    CRC.
    """
    attributes = read_header(buffer).attributes & ~CODEC_MASK | codec
    _LENGTH.pack_into(buffer, 8, len(buffer) - LENGTH_END)
    _ATTRIBUTES.pack_into(buffer, 21, attributes)
    seal(buffer)


def seal(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Updates the CRC of the batch at `position`."""
    size = read_header(buffer, position).size
    _CRC.pack_into(buffer, position + 17, crc32c(memoryview(buffer)[position + CRC_START : position + size]))
