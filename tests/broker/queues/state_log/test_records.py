"""Records of the state log of share groups are Kafka's, byte for byte; the bytes were made from its schemas."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.state_log.records import (
    ShareSnapshotted,
    ShareSnapshotValue,
    ShareUpdated,
    ShareUpdateValue,
    StateBatch,
    UnreadableShareState,
    decode,
    encode,
)
from tailrace.records.record import Record

KEY = ShareKey("g", bytes(range(16)), 0)
KEY_BYTES = bytes.fromhex("0000 000167 000102030405060708090a0b0c0d0e0f 00000000")
SNAPSHOT_BYTES = bytes.fromhex(
    "0000 00000000 00000001 ffffffff ffffffffffffffff 00000000000003e8 00000000000003e8 01 00"
)
UPDATE_BYTES = bytes.fromhex(
    "0000 00000000 00000000 0000000000000005 02 0000000000000005 0000000000000009 02 0001 00 01 00 04 00000005"
)
FIRST = ShareSnapshotValue(state_epoch=1, leader_epoch=-1, start_offset=-1, create_timestamp=1000, write_timestamp=1000)
ACKNOWLEDGED = StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)
UPDATE = ShareUpdateValue(start_offset=5, state_batches=[ACKNOWLEDGED], delivery_complete_count=5)


def test_a_snapshot_has_the_bytes_that_kafka_writes() -> None:
    record = encode(ShareSnapshotted(KEY, FIRST), 5)
    assert (record.key, record.value, record.timestamp) == (KEY_BYTES, SNAPSHOT_BYTES, 5)
    assert decode(record) == ShareSnapshotted(KEY, FIRST)


def test_an_update_has_the_bytes_that_kafka_writes() -> None:
    record = encode(ShareUpdated(KEY, UPDATE), 5)
    assert (record.key, record.value) == (b"\x00\x01" + KEY_BYTES[2:], UPDATE_BYTES)
    assert decode(record) == ShareUpdated(KEY, UPDATE)


def test_a_deleted_state_is_a_snapshot_without_a_value() -> None:
    record = encode(ShareSnapshotted(KEY, None), 5)
    assert (record.key, record.value) == (KEY_BYTES, None)
    assert decode(record) == ShareSnapshotted(KEY, None)


def test_a_partial_snapshot_differs_by_a_tagged_field_alone() -> None:
    partial = ShareSnapshotValue(state_epoch=1, start_offset=7, is_partial=True)
    whole = ShareSnapshotValue(state_epoch=1, start_offset=7)
    record = encode(ShareSnapshotted(KEY, partial), 5)
    assert decode(record) == ShareSnapshotted(KEY, partial)
    plain = encode(ShareSnapshotted(KEY, whole), 5).value
    assert plain is not None
    assert record.value is not None
    assert record.value.startswith(plain[:-1])
    assert plain[-1:] == b"\x00"


def test_fields_of_other_releases_are_skipped() -> None:
    batch_at = UPDATE_BYTES.index(bytes.fromhex("0001 00 01 00 04"))
    with_tag = UPDATE_BYTES[: batch_at + 2] + bytes.fromhex("01 63 02 abcd") + UPDATE_BYTES[batch_at + 3 :]
    with_tag = with_tag.replace(bytes.fromhex("01 00 04 00000005"), bytes.fromhex("02 00 04 00000005 07 01 ff"))
    assert decode(Record(0, 0, b"\x00\x01" + KEY_BYTES[2:], with_tag)) == ShareUpdated(KEY, UPDATE)


def test_records_of_other_kinds_are_skipped() -> None:
    assert decode(Record(0, 0, b"\x00\x02" + KEY_BYTES[2:], b"whatever")) is None
    assert decode(Record(0, 0, b"\x00\x01" + KEY_BYTES[2:], None)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", SNAPSHOT_BYTES),
        (b"\xff\xff" + KEY_BYTES[2:], SNAPSHOT_BYTES),
        (KEY_BYTES[:-1], SNAPSHOT_BYTES),
        (KEY_BYTES, SNAPSHOT_BYTES[:-1]),
        (KEY_BYTES, b""),
        (KEY_BYTES, struct.pack(">h", 1) + SNAPSHOT_BYTES[2:]),
        (KEY_BYTES, SNAPSHOT_BYTES + b"\x00"),
    ],
)
def test_a_record_that_is_none_of_these_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableShareState, match="record 7"):
        decode(Record(7, 0, key, value))


int32s, int64s = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
batches = st.lists(
    st.builds(
        StateBatch,
        first_offset=int64s,
        last_offset=int64s,
        delivery_state=st.integers(-128, 127),
        delivery_count=st.integers(-32768, 32767),
    ),
    max_size=5,
)
keys = st.builds(ShareKey, st.text(max_size=20), st.binary(min_size=16, max_size=16), int32s)
snapshots = st.builds(
    ShareSnapshotValue,
    snapshot_epoch=int32s,
    state_epoch=int32s,
    leader_epoch=int32s,
    start_offset=int64s,
    create_timestamp=int64s,
    write_timestamp=int64s,
    state_batches=batches,
    delivery_complete_count=int32s,
    is_partial=st.booleans(),
)
updates = st.builds(
    ShareUpdateValue,
    snapshot_epoch=int32s,
    leader_epoch=int32s,
    start_offset=int64s,
    state_batches=batches,
    delivery_complete_count=int32s,
)


@given(keys, st.one_of(st.none(), snapshots))
def test_a_snapshot_is_read_as_it_was_written(key: ShareKey, value: ShareSnapshotValue | None) -> None:
    change = ShareSnapshotted(key, value)
    assert decode(encode(change, 5)) == change


@given(keys, updates)
def test_an_update_is_read_as_it_was_written(key: ShareKey, value: ShareUpdateValue) -> None:
    assert decode(encode(ShareUpdated(key, value), 5)) == ShareUpdated(key, value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    with contextlib.suppress(UnreadableShareState):
        decode(Record(0, 0, key, value))
