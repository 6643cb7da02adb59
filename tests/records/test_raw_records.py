"""Records as bytes: found, left out and put together again without a change to those that stay."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.records.batch import HEADER_SIZE, check, read_header
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptRecords
from tailrace.records.raw_records import emptied, join_records, rebuilt, records_bytes, split_records
from tailrace.records.record import Record, decode_records, encode_batch

TIMES = st.integers(-1, 1 << 42)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(TIMES, st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200), HEADERS),
    min_size=1,
    max_size=20,
).map(lambda rows: [Record(n * n, *row) for n, row in enumerate(rows)])


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, codec=st.sampled_from(Codec), horizon=st.none() | TIMES, data=st.data())
def test_a_batch_that_is_built_again_of_some_of_its_records_holds_just_these(
    records: list[Record], codec: Codec, horizon: int | None, data: st.DataObject
) -> None:
    batch = encode_batch(records, codec=codec, producer_id=3, producer_epoch=1, base_sequence=7, transactional=True)
    header = read_header(batch)
    raw = records_bytes(batch, 0, header)
    rows = split_records(raw, header.record_count)
    assert [(row.key, row.has_value, row.offset_delta) for row in rows] == [
        (record.key, record.value is not None, record.offset) for record in records
    ]
    kept = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, unique=True).map(sorted))
    made = rebuilt(header, raw, [rows[n] for n in kept], horizon)
    assert decode_records(made) == [records[n] for n in kept]
    after = check(made)
    assert after.max_timestamp == max(records[n].timestamp for n in kept)
    assert after.delete_horizon == horizon
    assert (after.last_offset, after.base_sequence, after.codec) == (header.last_offset, 7, codec)


def test_what_stays_is_the_same_byte_for_byte() -> None:
    batch = encode_batch([Record(n, 5, b"k", b"v%d" % n, (("h", b""),)) for n in range(3)])
    raw = bytes(batch[HEADER_SIZE:])
    rows = split_records(raw, 3)
    assert join_records(raw, rows) == raw
    assert join_records(raw, rows[1:]) == raw[rows[1].start :]


def test_an_empty_batch_keeps_its_place_and_tells_of_its_producer() -> None:
    records = [Record(n, 5, b"k", b"v") for n in range(3)]
    batch = encode_batch(records, codec=Codec.ZSTD, producer_id=3, producer_epoch=1, base_sequence=7, base_offset=0)
    header, after = read_header(batch), check(emptied(read_header(batch)))
    assert len(emptied(header)) == HEADER_SIZE
    assert (after.record_count, after.codec, after.base_timestamp) == (0, 0, -1)
    assert (after.last_offset, after.last_sequence, after.producer_epoch) == (2, 9, 1)
    assert after.max_timestamp == header.max_timestamp
    assert decode_records(emptied(header)) == []


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, data=st.data())
def test_bytes_that_are_no_records_are_refused(records: list[Record], data: st.DataObject) -> None:
    raw = bytes(encode_batch(records)[HEADER_SIZE:])
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(CorruptRecords):
        split_records(raw[:cut], len(records))
    with pytest.raises(CorruptRecords):
        split_records(raw + b"\0", len(records))
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = bytearray(raw)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CorruptRecords):
        split_records(bytes(damaged), len(records))
