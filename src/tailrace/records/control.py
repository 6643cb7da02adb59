"""Control batches: the markers that end a transaction. They lie in the log like records; clients skip them.

A marker is a batch of its own, control and transactional, under the id and epoch of its producer:

    key      int16 version 0, int16 type
    value    int16 version 0, int32 epoch of the transaction coordinator

Newer versions may only add fields at the end, so what is read here is read from those too. Other types of
control records (Kafka has some in its metadata log) are not markers, and not errors.
"""

import struct
from enum import IntEnum

from tailrace.records.batch import Buffer
from tailrace.records.errors import CorruptRecords
from tailrace.records.record import Record, decode_records, encode_batch

NO_COORDINATOR_EPOCH = -1

_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class Marker(IntEnum):
    """The outcome of a transaction."""

    ABORT = 0
    COMMIT = 1


NO_MARKER = None, NO_COORDINATOR_EPOCH


def encode_marker(
    kind: Marker,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Returns a sealed batch of one control record, which ends the producer's transaction in its partition."""
    key = _KEY.pack(_VERSION, kind)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_marker(record: Record) -> tuple[Marker | None, int]:
    """Returns the marker in a control record, and its coordinator's epoch; None and -1 if it is no marker."""
    kind = _unpack(_KEY, record.key, "key")
    try:
        marker = Marker(kind)
    except ValueError:
        return NO_MARKER
    coordinator_epoch = _unpack(_VALUE, record.value, "value")
    return marker, coordinator_epoch


def _unpack(layout: struct.Struct, data: bytes | None, name: str) -> int:
    """Returns the number after the version, which must not be negative."""
    if data is None or len(data) < layout.size:
        raise CorruptRecords(f"the {name} of a control record needs {layout.size} bytes, but is {data!r}")
    version: int
    number: int
    version, number = layout.unpack_from(data)
    if version < _VERSION:
        raise CorruptRecords(f"invalid version {version} in the {name} of a control record")
    return number


def marker_of(buffer: Buffer, position: int = 0) -> tuple[Marker | None, int]:
    """Returns the marker in the control batch at `position`, like `decode_marker`."""
    for record in decode_records(buffer, position):
        return decode_marker(record)
    return NO_MARKER  # compaction has removed its record
