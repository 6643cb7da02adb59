"""Batches for tests, short to write down: what is not said does not matter."""

from typing import Any

from tailrace.records.batch import HEADER, LENGTH_MIN, BatchHeader, read_header, seal
from tailrace.records.record import Record, encode_batch

TIMESTAMP = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    base_offset: int = 0,
    timestamp: int = TIMESTAMP,
    value_bytes: int = 20,
    leader_epoch: int = 0,
    **options: Any,
) -> bytearray:
    """A sealed batch of `count` records; `options` are those of `encode_batch`."""
    offsets = range(base_offset, base_offset + count)
    records = [Record(o, timestamp + o - base_offset, b"key %d" % o, _value(o, value_bytes)) for o in offsets]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, **options)


def _value(offset: int, size: int) -> bytes:
    return (b"value %d " % offset).ljust(size, b".")


def header(count: int = 1, **options: Any) -> BatchHeader:
    return read_header(batch(count, **options))


def consecutive(*counts: int, base_offset: int = 0, **options: Any) -> list[bytearray]:
    """Batches with so many records each, every one where the one before it ends."""
    batches = []
    for count in counts:
        batches.append(batch(count, base_offset=base_offset, **options))
        base_offset += count
    return batches


def flip(data: bytes | bytearray, bit: int) -> bytes:
    """A copy of `data` with one bit the other way round; bits count from the first byte's lowest."""
    copy = bytearray(data)
    copy[bit // 8] ^= 1 << bit % 8
    return bytes(copy)


def varint(value: int) -> bytes:
    encoded = (value << 1) ^ (value >> 63)
    output = bytearray()
    while encoded > 0x7F:
        output.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*output, encoded])


def batch_of(payload: bytes | bytearray | memoryview, *, record_count: int = 1, attributes: int = 0) -> bytearray:
    """A sealed batch around bytes that claim to be records."""
    empty = read_header(encode_batch([], last_offset_delta=max(0, record_count - 1)))
    claimed = empty._replace(length=LENGTH_MIN + len(payload), record_count=record_count, attributes=attributes)
    data = bytearray(HEADER.pack(*claimed)) + payload
    seal(data)
    return data
