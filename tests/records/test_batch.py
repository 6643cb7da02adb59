"""The header of a batch: where its fields lie, what `check` catches, and what stamping leaves intact."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as ForeignBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from tailrace.records import batch
from tailrace.records.errors import CorruptBatch, TruncatedBatch

OUTSIDE_THE_CRC = {*range(0, 8), *range(12, 16)}  # base offset and leader epoch


def foreign_batch(*, records: int = 3, producer_id: int = 4711, base_sequence: int = 40) -> bytearray:
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=0,
        batch_size=1 << 20,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=7,
        base_sequence=base_sequence,
    )
    for index in range(records):
        builder.append(timestamp=1_700_000_000_000 + index, key=b"key", value=b"value %d" % index)
    builder.close()
    return bytearray(builder.buffer())


def test_header_fields_lie_where_other_clients_put_them() -> None:
    data = foreign_batch()
    batch.stamp(data, batch.read_header(data), base_offset=1 << 40, leader_epoch=9)
    header = batch.check(data)
    assert header.base_offset == 1 << 40
    assert header.size == len(data)
    assert header.leader_epoch == 9
    assert header.attributes == batch.TRANSACTIONAL
    assert (header.last_offset_delta, header.record_count) == (2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 7, 40)
    assert (header.last_offset, header.next_offset) == ((1 << 40) + 2, (1 << 40) + 3)
    assert header.last_sequence == 42
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_log_append_time
    assert header.delete_horizon is None


def test_a_stamped_batch_is_intact_for_us_and_for_others() -> None:
    data = foreign_batch()
    crc = batch.read_header(data).crc
    stamped = batch.stamp(data, batch.read_header(data), base_offset=123_456, leader_epoch=5)
    assert stamped == batch.read_header(data)
    assert batch.check(data).crc == crc
    foreign = ForeignBatch(bytes(data))
    assert foreign.validate_crc()
    assert [record.offset for record in foreign] == [123_456, 123_457, 123_458]


def test_log_append_time_counts_for_every_record_and_keeps_the_crc_right() -> None:
    data = foreign_batch()
    changed = batch.set_log_append_time(data, batch.read_header(data), 1_800_000_000_000)
    assert changed == batch.read_header(data)
    header = batch.check(data)
    assert header.has_log_append_time
    assert header.is_transactional, "the other attributes stay"
    assert header.max_timestamp == 1_800_000_000_000
    foreign = ForeignBatch(bytes(data))
    assert foreign.validate_crc()
    assert {record.timestamp for record in foreign} == {1_800_000_000_000}


def test_stamping_inside_a_larger_buffer_touches_one_batch_only() -> None:
    one = foreign_batch()
    data = one + one + one
    view = memoryview(data)
    second = view[len(one) : 2 * len(one)]
    header = batch.stamp(second, batch.read_header(second), 77, 1)
    batch.set_log_append_time(second, header, 5)
    assert data[: len(one)] == data[2 * len(one) :] == one
    assert [header.base_offset for _, header in batch.split(data)] == [0, 77, 0]


def test_every_flipped_bit_is_caught_unless_it_is_ours_to_stamp() -> None:
    data = foreign_batch(records=1)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        if bit // 8 in OUTSIDE_THE_CRC:
            assert bit == 7 or batch.check(data), "only the sign of the base offset can be wrong"
        else:
            with pytest.raises(CorruptBatch):
                batch.check(data)
        data[bit // 8] ^= 1 << bit % 8


def test_a_batch_cut_at_any_byte_is_truncated() -> None:
    data = foreign_batch()
    for size in range(len(data)):
        with pytest.raises(TruncatedBatch):
            batch.check(data[:size])


def test_a_batch_cut_at_any_byte_is_truncated_wherever_it_begins() -> None:
    one = foreign_batch(records=1)
    for size in range(1, len(one)):
        with pytest.raises(TruncatedBatch):
            list(batch.split(one + one[:size]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 1),
        ("length", batch.LENGTH_MIN - 1),
        ("length", -1),
        ("base_offset", -1),
        ("last_offset_delta", -1),
        ("record_count", -1),
        ("record_count", 4),
    ],
)
def test_illegal_header_fields_are_refused_even_with_a_right_crc(field: str, value: int) -> None:
    data = foreign_batch()
    header = batch.read_header(data)._replace(**{field: value})
    data[: batch.HEADER_SIZE] = batch.HEADER.pack(*header)
    if field != "length":
        batch.seal(data)
    with pytest.raises(CorruptBatch):
        batch.check(data)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_corrupt_batch(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        batch.check(data)


@given(st.binary(min_size=49, max_size=120), st.integers(0, 200))
def test_arbitrary_bytes_behind_a_plausible_start_are_corrupt(tail: bytes, length: int) -> None:
    data = bytes(8) + length.to_bytes(4, "big") + bytes(4) + b"\x02" + tail
    with pytest.raises(CorruptBatch):
        batch.check(data)


def test_split_gives_each_batch_with_its_position_and_stops_at_damage() -> None:
    one = foreign_batch()
    data = one + one + one
    data[-1] ^= 1
    batches = batch.split(data)
    assert [next(batches)[0], next(batches)[0]] == [0, len(one)]
    with pytest.raises(CorruptBatch):
        next(batches)


def test_sequences_wrap_after_the_largest_int32() -> None:
    header = batch.read_header(foreign_batch(base_sequence=2**31 - 1))
    assert header.last_sequence == 1
    assert header._replace(base_sequence=batch.NO_SEQUENCE).last_sequence == batch.NO_SEQUENCE


def test_the_delete_horizon_is_kept_in_the_base_timestamp() -> None:
    header = batch.read_header(foreign_batch())
    marked = header._replace(attributes=header.attributes | batch.DELETE_HORIZON, base_timestamp=99)
    assert marked.delete_horizon == 99
