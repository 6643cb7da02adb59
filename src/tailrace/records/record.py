"""The records inside a batch: decode, encode, find by timestamp (for compaction, time lookup, HTTP).

A batch is decoded whole or refused whole, so that no caller acts on its first records and then finds the later ones
broken. The bytes are decompressed here, within a limit, and parsed by one of the decoders in `decoders`. Decoded
offsets rise and lie inside the batch. `encode_batch` is the opposite: it returns a batch that any client can read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_header,
    read_header,
    seal,
)
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressionBudget, compress, decompress
from tailrace.records.decoders import HEADER_KEY_ERRORS, RECORD_SIZE_MIN, Decoder, Headers, best_decoder, wrap_int64
from tailrace.records.errors import CorruptRecords, TruncatedBatch


class Record(NamedTuple):
    """One record at its offset. Bytes of a header key that are not UTF-8 are lone surrogates."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def decode_records(
    buffer: Buffer,
    position: int = 0,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
    budget: DecompressionBudget | None = None,
    decoder: Decoder | None = None,
) -> list[Record]:
    """Decodes all records of the batch at `position`. Its CRC must have been checked before.

    Raises CorruptRecords unless every byte belongs to a valid record, TooLarge if the records take more than `limit`
    bytes decompressed, or than `budget` allows. If the batch has log-append time, that is each record's timestamp.
    Everything but the CRC is checked: a batch whose CRC was not checked raises CorruptBatch at worst.
    """
    header = read_header(buffer, position)
    check_header(header)
    if position + header.size > len(buffer):
        raise TruncatedBatch(f"{len(buffer) - position} bytes of a batch of {header.size}")
    payload: Buffer = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    if header.record_count == 0 and not payload:
        return []  # compaction removed all of them
    payload = decompress(header.codec, payload, limit, budget)
    if header.record_count * RECORD_SIZE_MIN > len(payload):
        raise CorruptRecords(f"{header.record_count} records in {len(payload)} bytes")
    rows = (decoder or best_decoder())(header, payload)
    records = list(map(Record._make, rows))
    _check_offsets(header, records)
    return records


def _check_offsets(header: BatchHeader, records: list[Record]) -> None:
    """Raises CorruptRecords unless offsets rise and lie inside the batch."""
    offset_min = header.base_offset
    for record in records:
        if record.offset < offset_min:
            raise CorruptRecords(f"offset {record.offset}, expected {offset_min} or more")
        offset_min = record.offset + 1
    if offset_min > header.next_offset:
        raise CorruptRecords(f"offset {offset_min - 1} in a batch that ends at {header.last_offset}")


def first_record_at_or_after(
    buffer: Buffer,
    position: int,
    timestamp: int,
    *,
    start_offset: int = 0,
) -> Record | None:
    """Returns the first record of a checked batch at `start_offset` or later with this timestamp or a later one, or
    None.
    """
    if read_header(buffer, position).max_timestamp < timestamp:
        return None
    for record in decode_records(buffer, position):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return record
    return None


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """Returns a whole, sealed batch of `records`, whose offsets must rise from `base_offset` or later; there may be
    gaps.

    `last_offset_delta` keeps offsets at the end whose records were removed, and is required if there are no records. A
    `log_append_time` becomes the timestamp of all records when they are decoded. A `delete_horizon` replaces the base
    timestamp.
    """
    if last_offset_delta is None:
        assert records, "a batch without records must say how many offsets it takes"
        last_offset_delta = records[-1].offset - base_offset
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = codec | transactional * TRANSACTIONAL | control * CONTROL
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon
    payload: Buffer = b""
    if records:
        payload = compress(codec, _encode_records(records, base_offset, last_offset_delta, base_timestamp))
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_SIZE - LENGTH_END + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    check_header(header)
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    seal(batch)
    return batch


def _encode_records(
    records: Sequence[Record], base_offset: int, last_offset_delta: int, base_timestamp: int
) -> bytearray:
    output = bytearray()
    delta_min = 0
    for record in records:
        offset_delta = record.offset - base_offset
        assert delta_min <= offset_delta <= last_offset_delta, "offsets rise and lie inside the batch"
        delta_min = offset_delta + 1
        body = bytearray(1)  # no attributes
        write_varint(body, wrap_int64(record.timestamp - base_timestamp))
        write_varint(body, offset_delta)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for key, value in record.headers:
            _write_bytes(body, key.encode("utf-8", HEADER_KEY_ERRORS))
            _write_bytes(body, value)
        write_varint(output, len(body))
        output += body
    return output


def _write_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        output.append(1)  # the varint -1
    else:
        write_varint(output, len(data))
        output += data


def write_varint(output: bytearray, value: int) -> None:
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        output.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    output.append(encoded)
