"""Records as bytes: the position of each in its batch, and its key. For compaction, which removes some records of a
batch and keeps the others byte for byte.

`split_records` finds the records, `join_records` joins some of them again. `rebuilt` and `emptied` create batches that
keep their position in the log (base offset, last offset, producer and sequence) although records were removed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    seal,
)
from tailrace.records.compression import Codec, compress, decompress
from tailrace.records.decoders import read_varint, wrap_int64
from tailrace.records.errors import CorruptRecords
from tailrace.records.record import write_varint


class RawRecord(NamedTuple):
    """A record from `start`, where its length begins, to before `end`."""

    start: int
    body: int
    behind_timestamp: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def records_of(buffer: Buffer, position: int, header: BatchHeader) -> tuple[bytes, list[RawRecord]]:
    """Returns the decompressed records of a batch, and the position of each. Raises CorruptRecords, also if a record
    has an offset outside the batch, and TooLarge.
    """
    data = records_bytes(buffer, position, header)
    rows = split_records(data, header.record_count)
    deltas = [row.offset_delta for row in rows]
    if deltas and not 0 <= min(deltas) <= max(deltas) <= header.last_offset_delta:
        raise CorruptRecords(f"a record's offset is outside its batch of {header.last_offset_delta + 1} offsets")
    return data, rows


def records_bytes(buffer: Buffer, position: int, header: BatchHeader) -> bytes:
    """Returns the records of a batch, decompressed. Raises CorruptRecords, and TooLarge as `decompress` does."""
    payload = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    return bytes(decompress(header.codec, payload)) if header.record_count or payload else b""


def split_records(data: bytes, count: int) -> list[RawRecord]:
    """Splits `data` into records. Raises CorruptRecords unless it consists of exactly `count` records."""
    rows: list[RawRecord] = []
    position = 0
    try:
        for _ in range(count):
            row = _record_at(data, position)
            rows.append(row)
            position = row.end
    except IndexError:
        raise CorruptRecords(f"the bytes end inside record {len(rows)} of {count}") from None
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes after the last record")
    return rows


def _record_at(data: bytes, start: int) -> RawRecord:
    """Parses one record. Most numbers take one byte, and those are read in place: a call would cost more than
    the rest.
    """
    length, body = read_varint(data, start)
    end = body + length
    if length < 0 or end > len(data):
        raise CorruptRecords(f"a record of {length} bytes, but {len(data) - body} are left")
    timestamp_delta, behind_timestamp = read_varint(data, body + 1)  # behind the attributes
    byte = data[behind_timestamp]
    if byte < 0x80:
        offset_delta, position = (byte >> 1) ^ -(byte & 1), behind_timestamp + 1
    else:
        offset_delta, position = read_varint(data, behind_timestamp)
    byte = data[position]
    if byte < 0x80:
        key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        key_length, position = read_varint(data, position)
    key = None
    if key_length >= 0:
        key = data[position : position + key_length]
        position += key_length
    has_value = not data[position] & 1  # the sign of a zigzag number is its lowest bit
    if position >= end:
        raise CorruptRecords(f"a record ends at byte {end}, inside its key")
    return RawRecord(start, body, behind_timestamp, end, timestamp_delta, offset_delta, key, has_value)


def join_records(data: bytes, rows: Sequence[RawRecord], timestamp_shift: int = 0) -> bytes:
    """Returns the records' bytes, one after the other. With a shift, their timestamps are relative to a base later by
    that much.
    """
    if not timestamp_shift:
        return b"".join([data[row.start : row.end] for row in rows])
    output = bytearray()
    for row in rows:
        delta = bytearray()
        write_varint(delta, wrap_int64(row.timestamp_delta - timestamp_shift))
        write_varint(output, row.end - row.behind_timestamp + len(delta) + 1)
        output += data[row.body : row.body + 1]
        output += delta
        output += data[row.behind_timestamp : row.end]
    return bytes(output)


def rebuilt(
    header: BatchHeader, data: bytes, rows: Sequence[RawRecord], delete_horizon: int | None = None
) -> bytearray:
    """Returns the batch with only these records. A new delete horizon replaces the base timestamp."""
    base_timestamp = header.base_timestamp if delete_horizon is None else delete_horizon
    payload = compress(Codec(header.codec), join_records(data, rows, base_timestamp - header.base_timestamp))
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = max(wrap_int64(header.base_timestamp + row.timestamp_delta) for row in rows)
    return _sealed(
        header._replace(
            length=LENGTH_MIN + len(payload),
            attributes=header.attributes | (0 if delete_horizon is None else DELETE_HORIZON),
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(rows),
        ),
        payload,
    )


def emptied(header: BatchHeader) -> bytearray:
    """Returns the batch without records: it keeps its position, and its producer's epoch and sequence."""
    return _sealed(
        header._replace(
            length=LENGTH_MIN,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _sealed(header: BatchHeader, payload: Buffer) -> bytearray:
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    seal(batch)
    return batch
