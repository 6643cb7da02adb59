"""Transaction markers: built as Kafka builds them, read with care."""

import struct

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as ForeignBatch

from tailrace.records import batch
from tailrace.records.control import Marker, decode_marker, encode_marker
from tailrace.records.errors import CorruptRecords
from tailrace.records.record import Record, decode_records

KEY = struct.pack(">hh", 0, 1)
VALUE = struct.pack(">hi", 0, 12)


@pytest.mark.parametrize("kind", list(Marker))
def test_a_marker_comes_back_as_it_was_encoded(kind: Marker) -> None:
    data = encode_marker(kind, 4711, 3, 12, 1_700_000_000_000, base_offset=99, leader_epoch=5)
    header = batch.check(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, batch.NO_SEQUENCE)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (99, 5, 1)
    (record,) = decode_records(data)
    assert (record.offset, record.timestamp) == (99, 1_700_000_000_000)
    assert decode_marker(record) == (kind, 12)


@pytest.mark.parametrize(("kind", "expected"), [(Marker.ABORT, ABORT_MARKER), (Marker.COMMIT, COMMIT_MARKER)])
def test_other_clients_see_our_markers(kind: Marker, expected: ControlRecord) -> None:
    foreign = ForeignBatch(bytes(encode_marker(kind, 1, 0, 0, 0)))
    assert foreign.is_control_batch
    (record,) = foreign
    assert ControlRecord.parse(record.key) == expected


def test_control_records_of_other_types_are_no_markers_and_no_errors() -> None:
    leader_change = Record(0, key=struct.pack(">hh", 0, 2), value=b"something else")
    assert decode_marker(leader_change) == (None, -1)


def test_newer_versions_with_more_fields_are_read() -> None:
    newer = Record(0, key=struct.pack(">hhi", 1, 1, 77), value=struct.pack(">hiq", 1, 12, 77))
    assert decode_marker(newer) == (Marker.COMMIT, 12)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"", VALUE),
        (KEY[:3], VALUE),
        (struct.pack(">hh", -1, 1), VALUE),
        (KEY, None),
        (KEY, b""),
        (KEY, VALUE[:5]),
        (KEY, struct.pack(">hi", -1, 12)),
    ],
)
def test_malformed_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        decode_marker(Record(0, key=key, value=value))
