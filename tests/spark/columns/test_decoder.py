"""Fetches as Arrow batches: every kind of batch, any range of offsets, and where to read on."""

import subprocess
import sys
import tracemalloc
from typing import Any

import cramjam
import parts
import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder
from batches import batch, consecutive, flip
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records.batch import HEADER, HEADER_SIZE, LENGTH_MIN, read_header, seal, split, stamp
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.errors import CorruptBatch, CorruptRecords, TooLarge, TruncatedBatch
from tailrace.records.record import Record, decode_records, encode_batch

if not parts.missing("arrow"):
    import pyarrow as pa

    from tailrace.spark.columns.decoder import ColumnDecoder
    from tailrace.spark.columns.ranges import NumberRange
    from tailrace.spark.columns.schema import COLUMNS, TYPES, schema_of

pytestmark = pytest.mark.needs("arrow")

INT64_MAX = 2**63 - 1
MICROSECONDS_MAX = INT64_MAX

all_codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)

nullable_bytes = st.none() | st.binary(max_size=30)
timestamps = st.integers(-(2**63), INT64_MAX) | st.integers(-1, 2_000_000_000_000)
headers = st.lists(st.tuples(st.text(max_size=8), nullable_bytes), max_size=3).map(tuple)
# What a record holds besides its offset, and how many offsets lie empty before it.
content = st.tuples(st.integers(0, 3), timestamps, nullable_bytes, nullable_bytes, headers)
# The records of a batch, the offsets that lie empty behind them, its codec and its log-append time.
batch_plan = st.tuples(
    st.lists(content, max_size=8), st.integers(0, 3), st.sampled_from(Codec), st.none() | st.integers(-5, 2**41)
)


def rows(batches: "list[pa.RecordBatch]") -> list[dict[str, Any]]:
    """All rows, with timestamps as microseconds: Python's own end with the year 9999."""
    found = []
    for one in batches:
        one.validate(full=True)
        if "timestamp" in one.schema.names:
            index = one.schema.get_field_index("timestamp")
            assert one.schema.field(index).type == pa.timestamp("us", tz="UTC")
            one = one.set_column(index, "timestamp", one.column(index).cast(pa.int64()))
        found += one.to_pylist()
    return found


def decode(data: bytes | bytearray, *range_and_aborted: Any, **options: Any) -> list[dict[str, Any]]:
    decoder = ColumnDecoder("orders", 3, **({"columns": tuple(TYPES)} | options))
    return rows(list(decoder.decode(data, *range_and_aborted)))


def offsets_of(data: bytes | bytearray, *range_and_aborted: Any, **options: Any) -> list[int]:
    return [row["offset"] for row in decode(data, *range_and_aborted, columns=["offset"], **options)]


def expected_rows(
    data: bytes | bytearray, start: int = 0, end: int = INT64_MAX, first: int = -INT64_MAX - 1, last: int = INT64_MAX
) -> list[dict[str, Any]]:
    """The same rows by way of the records."""
    return [
        expected_row(record, header.has_log_append_time)
        for position, header in split(data)
        if not header.is_control
        for record in decode_records(data, position)
        if start <= record.offset < end and first <= record.timestamp <= last
    ]


def expected_row(record: Record, has_log_append_time: bool) -> dict[str, Any]:
    microseconds = record.timestamp * 1000
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": microseconds if abs(microseconds) <= MICROSECONDS_MAX else None,
        "timestampType": int(has_log_append_time),
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def fetch_of(plans: list[Any], base_offset: int) -> bytearray:
    data = bytearray()
    for contents, empty_tail, codec, log_append_time in plans:
        records, offset = [], base_offset
        for gap, *rest in contents:
            records.append(Record(offset + gap, *rest))
            offset += gap + 1
        last_offset = max(offset - 1, base_offset) + empty_tail
        data += encode_batch(
            records,
            base_offset=base_offset,
            last_offset_delta=last_offset - base_offset,
            codec=codec,
            log_append_time=log_append_time,
        )
        base_offset = last_offset + 1
    return data


def transaction(producer_id: int, base_offset: int, count: int = 2) -> bytearray:
    return batch(count, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, transactional=True)


# --- the schema ---------------------------------------------------------------------------------------------


def test_the_schema_is_that_of_sparks_own_kafka_format() -> None:
    assert str(schema_of(TYPES)).splitlines() == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<element: struct<key: string, value: binary>>",
        "  child 0, element: struct<key: string, value: binary>",
        "      child 0, key: string",
        "      child 1, value: binary",
    ]
    assert all(field.nullable for field in schema_of(TYPES))
    assert schema_of().names == list(COLUMNS)


@pytest.mark.parametrize("columns", [["offset", "value"], ["headers", "value"]])
def test_only_the_columns_asked_for_come_and_in_that_order(columns: list[str]) -> None:
    decoder = ColumnDecoder("orders", 3, columns)
    (one,) = decoder.decode(batch(2))
    assert one.schema == decoder.schema
    assert one.schema.names == columns


@pytest.mark.parametrize("columns", [[], ["value", "value"], ["value", "valeu"]])
def test_columns_that_make_no_schema_are_refused(columns: list[str]) -> None:
    with pytest.raises(ValueError, match="column"):
        schema_of(columns)


# --- every kind of batch ------------------------------------------------------------------------------------


@given(
    plans=st.lists(batch_plan, max_size=6),
    base_offset=st.integers(0, 2**40),
    start=st.integers(-2, 40),
    length=st.integers(0, 40),
    rows_max=st.integers(1, 7),
)
def test_the_rows_are_those_that_the_record_decoder_gives(
    plans: list[Any], base_offset: int, start: int, length: int, rows_max: int
) -> None:
    data = fetch_of(plans, base_offset)
    whole = list(ColumnDecoder("orders", 3, TYPES, rows_max=rows_max).decode(data))
    assert all(0 < len(one) <= rows_max for one in whole)
    assert rows(whole) == expected_rows(data)
    start = max(0, base_offset + start)
    assert decode(data, start, start + length) == expected_rows(data, start, start + length)


@given(
    plans=st.lists(batch_plan, max_size=6),
    times=st.tuples(timestamps, timestamps) | st.tuples(st.integers(-5, 5), st.integers(-5, 5)),
)
def test_the_rows_of_some_times_are_those_in_whatever_order_they_come(plans: list[Any], times: tuple[int, int]) -> None:
    data = fetch_of(plans, 0)
    assert decode(data, 0, INT64_MAX, (), NumberRange(*times)) == expected_rows(data, 0, INT64_MAX, *times)


@all_codecs
def test_all_codecs_in_batches_of_any_size(codec: Codec) -> None:
    data = b"".join(consecutive(1, 300, 1, 2, 5000, 40, value_bytes=100, codec=codec))
    assert decode(data) == expected_rows(data)


@all_codecs
def test_batches_built_by_aiokafka(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset in range(50):
        builder.append(offset, 1_700_000_000_000 + offset, b"key", b"value" * offset, [("trace", b"%d" % offset)])
    data = builder.build()
    assert decode(data) == expected_rows(data)


def test_snappy_without_a_frame() -> None:
    plain = batch(5)
    payload = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:]))
    header = read_header(plain)._replace(attributes=Codec.SNAPPY, length=LENGTH_MIN + len(payload))
    data = bytearray(HEADER.pack(*header)) + payload
    seal(data)
    assert decode(data) == expected_rows(plain)


@pytest.mark.parametrize("timestamp", [-1, -1_000_000, 0, INT64_MAX, -INT64_MAX - 1, INT64_MAX // 1000])
@pytest.mark.parametrize("log_append_time", [None, 42, -1, INT64_MAX])
def test_timestamps_of_any_size_and_kind(timestamp: int, log_append_time: int | None) -> None:
    records = [Record(0, timestamp), Record(1, 7), Record(2, timestamp)]
    data = encode_batch(records, log_append_time=log_append_time)
    assert decode(data) == expected_rows(data)


def test_header_keys_that_are_not_utf8_are_mended() -> None:
    data = encode_batch([Record(0, headers=(("a\udcff", b"1"), ("é", None))), Record(1)])
    assert decode(data, columns=["offset", "headers"]) == [
        {"offset": 0, "headers": [{"key": "a\ufffd", "value": b"1"}, {"key": "é", "value": None}]},
        {"offset": 1, "headers": None},
    ]


def test_the_rows_outlive_the_fetch() -> None:
    data = batch(3)
    expected = expected_rows(data)
    batches = list(ColumnDecoder("orders", 3, TYPES).decode(data))
    data[:] = bytes(len(data))
    assert rows(batches) == expected


def test_many_small_batches_become_one_and_a_large_one_becomes_several() -> None:
    decoder = ColumnDecoder("orders", 0, ["value"], rows_max=100)
    assert [len(one) for one in decoder.decode(b"".join(consecutive(*[3] * 50)))] == [99, 51]
    assert [len(one) for one in decoder.decode(batch(250))] == [83, 83, 84]


def test_a_fetch_may_be_iterated_over_again() -> None:
    data = transaction(7, 0) + transaction(8, 2)
    fetched = ColumnDecoder("orders", 3, ["offset"]).decode(data, 0, 9, [(7, 0)])
    assert rows(list(fetched)) == rows(list(fetched)) == [{"offset": 2}, {"offset": 3}]


# --- where to read on ---------------------------------------------------------------------------------------


def next_offset(data: bytes | bytearray, start: int = 0, end: int = INT64_MAX) -> int:
    return ColumnDecoder("orders", 3).decode(data, start, end).next_offset


def test_reading_on_goes_by_the_last_header() -> None:
    assert next_offset(batch(3, base_offset=10), 10) == 13
    compacted = encode_batch([Record(12)], base_offset=10, last_offset_delta=39)
    assert next_offset(compacted, 10) == 50
    empty = encode_batch([], base_offset=50, last_offset_delta=9, codec=Codec.ZSTD)
    assert next_offset(compacted + empty, 10) == 60
    assert offsets_of(compacted + empty) == [12]
    marker = encode_marker(Marker.COMMIT, 7, 0, 0, 0, base_offset=60)
    assert next_offset(compacted + empty + marker, 10) == 61
    assert offsets_of(compacted + empty + marker) == [12]


def test_without_a_whole_batch_reading_goes_on_at_the_start() -> None:
    assert next_offset(b"", 77) == 77
    assert decode(b"", 77) == []


def test_a_batch_that_begins_before_the_start_gives_the_rest_of_its_rows() -> None:
    data = batch(10, base_offset=100, codec=Codec.LZ4) + batch(10, base_offset=110)
    assert offsets_of(data, 105, 112) == list(range(105, 112))
    assert next_offset(data, 105, 112) == 120, "past the end by the header"
    assert offsets_of(data, 110, 111) == [110]


def test_nothing_from_the_end_on_is_looked_at() -> None:
    data = batch(10) + flip(batch(10, base_offset=30), 8 * 70)
    assert offsets_of(data, 0, 30) == list(range(10))
    assert next_offset(data, 0, 30) == 30, "no batch is left before the end"
    with pytest.raises(CorruptBatch):
        offsets_of(data, 0, 31)


def test_a_last_batch_that_the_fetch_cut_short_is_left_for_the_next() -> None:
    data = batch(3) + batch(3, base_offset=3)
    for cut in range(1, len(data) // 2):
        assert next_offset(data[:-cut]) == 3
    assert offsets_of(data[:-1]) == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 60, 61, 80])
def test_a_first_batch_that_is_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(TruncatedBatch, match="orders-3, batch at offset 40: "):
        decode(batch(3, base_offset=40)[:size], 40)


# --- transactions -------------------------------------------------------------------------------------------


@pytest.fixture
def log() -> bytes:
    """Two producers at once: 7 aborts, then commits; 8 commits, then aborts; and one without transactions."""
    return b"".join(
        [
            transaction(7, 0),  # aborted
            transaction(8, 2),
            batch(1, base_offset=4),
            transaction(7, 5),  # aborted
            encode_marker(Marker.ABORT, 7, 0, 0, 0, base_offset=7),
            transaction(7, 8),
            encode_marker(Marker.COMMIT, 8, 0, 0, 0, base_offset=10),
            transaction(8, 11),  # aborted
            encode_marker(Marker.COMMIT, 7, 0, 0, 0, base_offset=13),
            encode_marker(Marker.ABORT, 8, 0, 0, 0, base_offset=14),
            batch(1, base_offset=15, producer_id=8, producer_epoch=0),
        ]
    )


@pytest.mark.parametrize("rows_max", [1, 3, 10_000])
def test_the_records_of_aborted_transactions_are_left_out(log: bytes, rows_max: int) -> None:
    assert offsets_of(log, 0, 100, [(7, 0), (8, 11)], rows_max=rows_max) == [2, 3, 4, 8, 9, 15]
    assert offsets_of(log, 0, 100, [(8, 11), (7, 0)], rows_max=rows_max) == [2, 3, 4, 8, 9, 15]


def test_without_a_list_of_aborted_transactions_only_markers_are_left_out(log: bytes) -> None:
    assert offsets_of(log) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 15]


def test_an_aborted_transaction_may_have_begun_before_the_fetch(log: bytes) -> None:
    later = log[len(transaction(7, 0)) + len(transaction(8, 2)) :]
    assert offsets_of(later, 4, 100, [(7, 0), (8, 11)]) == [4, 8, 9, 15]


def test_a_marker_that_is_none_is_an_error_where_it_matters() -> None:
    broken = encode_batch(
        [Record(2, key=b"\0", value=b"")], base_offset=2, producer_id=7, transactional=True, control=True
    )
    data = transaction(7, 0) + broken
    assert offsets_of(data) == [0, 1]
    with pytest.raises(CorruptRecords, match="orders-3, batch at offset 2: "):
        offsets_of(data, 0, 10, [(7, 0)])


# --- damage -------------------------------------------------------------------------------------------------


def test_a_checksum_that_is_wrong_is_found_at_its_offset() -> None:
    data = batch(3) + flip(batch(3, base_offset=3), 8 * 80)
    with pytest.raises(CorruptBatch, match=r"orders-3, batch at offset 3: CRC-32C"):
        decode(data)
    assert len(decode(data, columns=["offset"], check_crcs=False)) == 6, "who does not want it checked"


def test_offsets_that_go_back_are_an_error() -> None:
    for base_offset in (0, 2):
        with pytest.raises(CorruptBatch, match="orders-3, batch at offset 3: "):
            decode(batch(3) + batch(3, base_offset=base_offset))


def test_offsets_that_64_bits_do_not_hold_are_an_error() -> None:
    data = batch(3)
    stamp(data, read_header(data), INT64_MAX - 3, 0)
    assert offsets_of(data) == [INT64_MAX - 3, INT64_MAX - 2, INT64_MAX - 1]
    stamp(data, read_header(data), INT64_MAX - 2, 0)
    with pytest.raises(CorruptBatch, match="orders-3, batch at offset 5: "):
        decode(data, 5)


def test_an_older_format_is_an_error() -> None:
    data = batch(3)
    data[16] = 1
    with pytest.raises(CorruptBatch, match="magic 1"):
        decode(data)


def test_records_beyond_the_limit_are_refused() -> None:
    data = encode_batch([Record(0, value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(TooLarge, match="orders-3, batch at offset 0: "):
        decode(data, decompressed_bytes_max=100_000)
    assert len(decode(data, decompressed_bytes_max=100_100)) == 1


def test_more_records_than_there_can_be_bytes_for_take_no_memory() -> None:
    data = batch(3)
    header = read_header(data)._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 1)
    data[:HEADER_SIZE] = HEADER.pack(*header)
    seal(data)
    decode(batch(3))  # kernels are loaded with the first rows
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecords, match="so many records"):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_compressed_batches_are_decompressed_some_at_a_time() -> None:
    """3 kB of fetch that hold 96 MB: no more than a few of its batches are held at once."""
    megabytes = 8
    records = [Record(0, value=bytes(megabytes << 20))]
    one = encode_batch(records, codec=Codec.ZSTD)
    data = bytearray()
    for offset in range(12):
        stamp(one, read_header(one), offset, 0)
        data += one
    sizes = []
    tracemalloc.start()
    try:
        for each in ColumnDecoder("orders", 3, ["value"]).decode(data):
            sizes.append(each.nbytes)
        assert tracemalloc.get_traced_memory()[1] < 6 * megabytes << 20, "two batches, one copy, the codec's guess"
    finally:
        tracemalloc.stop()
    assert sum(sizes) >= 12 * megabytes << 20


# --- what is imported ---------------------------------------------------------------------------------------


def test_the_schema_is_known_without_the_compiler() -> None:
    program = "import sys, tailrace.spark.columns.schema; print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"
