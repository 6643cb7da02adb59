"""The records inside a batch: our encoder and others', two decoders that agree, and hostile bytes."""

import random
import subprocess
import sys
import tracemalloc
from typing import Any

import kafka.codec
import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch as ForeignBatch
from batches import batch_of, varint
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from tailrace.records import batch, decoders
from tailrace.records.compression import Codec
from tailrace.records.decoders import Decoder, decode_with_cython, decode_with_python
from tailrace.records.errors import CorruptBatch, CorruptRecords, TooLarge, TruncatedBatch
from tailrace.records.record import Record, decode_records, encode_batch, first_record_at_or_after

INT64_MAX = 2**63 - 1
# It brings gzip, and the others where their libraries are installed. aiokafka brings them all.
KAFKA_PYTHON_CODECS = [
    codec for codec in Codec if codec == Codec.NONE or getattr(kafka.codec, f"has_{codec.name.lower()}")()
]

DECODERS = {"cython": decode_with_cython, "python": decode_with_python}
both_decoders = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS.keys())
all_codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)

nullable_bytes = st.none() | st.binary(max_size=30)
timestamps = st.integers(-(2**63), INT64_MAX) | st.integers(0, 2_000_000_000_000)
headers = st.lists(st.tuples(st.text(max_size=8), nullable_bytes), max_size=3).map(tuple)
# What a record holds besides its offset, and how many offsets lie empty before it.
content = st.tuples(st.integers(0, 3), timestamps, nullable_bytes, nullable_bytes, headers)
base_offsets = st.integers(0, 2**40)


def sample_records(count: int = 10) -> list[Record]:
    return [
        Record(
            index,
            1_700_000_000_000 + index,
            key=None if index % 3 == 0 else b"key %d" % index,
            value=None if index % 4 == 1 else b"value %d " % index * index,
            headers=(("trace", b"%d" % index), ("empty", None)) if index % 2 else (),
        )
        for index in range(count)
    ]


def outcome(data: bytes | bytearray, decoder: Decoder) -> list[Record] | None:
    """The records, or None for a refusal; any other exception is a failure."""
    try:
        return decode_records(data, limit=1 << 20, decoder=decoder)
    except CorruptRecords:
        return None


# --- round trips --------------------------------------------------------------------------------------------


@both_decoders
@all_codecs
@given(contents=st.lists(content, max_size=20), base_offset=base_offsets, empty_tail=st.integers(0, 5))
def test_what_is_encoded_comes_back(
    decoder: Decoder, codec: Codec, contents: list[tuple[Any, ...]], base_offset: int, empty_tail: int
) -> None:
    records, offset = [], base_offset
    for gap, *rest in contents:
        records.append(Record(offset + gap, *rest))
        offset += gap + 1
    last_offset_delta = max(0, offset - 1 - base_offset) + empty_tail
    data = encode_batch(records, base_offset=base_offset, codec=codec, last_offset_delta=last_offset_delta)
    header = batch.check(data)
    assert (header.base_offset, header.last_offset_delta) == (base_offset, last_offset_delta)
    assert header.record_count == len(records)
    assert decode_records(data, decoder=decoder) == records


@both_decoders
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_is_decoded_wherever_it_lies_in_any_buffer(decoder: Decoder, kind: type) -> None:
    one = encode_batch(sample_records(3), codec=Codec.ZSTD)
    data = kind(b"before" + one + b"after")
    assert decode_records(data, 6, decoder=decoder) == sample_records(3)


def test_all_header_fields_are_encoded() -> None:
    data = encode_batch(
        sample_records(2),
        leader_epoch=3,
        codec=Codec.LZ4,
        producer_id=8,
        producer_epoch=9,
        base_sequence=10,
        transactional=True,
        control=True,
    )
    header = batch.check(data)
    assert header.attributes == Codec.LZ4 | batch.TRANSACTIONAL | batch.CONTROL
    assert header.leader_epoch == 3
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 9, 10)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_001)


def test_the_maximum_timestamp_need_not_be_the_last() -> None:
    header = batch.check(encode_batch([Record(0, 50), Record(1, 70), Record(2, 60)]))
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)


@both_decoders
def test_a_batch_that_compaction_emptied_keeps_its_offsets(decoder: Decoder) -> None:
    data = encode_batch([], base_offset=100, last_offset_delta=49, producer_id=7, codec=Codec.GZIP)
    header = batch.check(data)
    assert (header.record_count, header.next_offset, header.producer_id) == (0, 150, 7)
    assert len(data) == batch.HEADER_SIZE
    assert decode_records(data, decoder=decoder) == []


@both_decoders
def test_log_append_time_is_the_timestamp_of_every_record(decoder: Decoder) -> None:
    expected = [record._replace(timestamp=42) for record in sample_records(3)]
    encoded = encode_batch(sample_records(3), log_append_time=42)
    stamped = encode_batch(sample_records(3))
    batch.set_log_append_time(stamped, batch.read_header(stamped), 42)
    for data in (encoded, stamped):
        assert batch.check(data).max_timestamp == 42
        assert decode_records(data, decoder=decoder) == expected


@both_decoders
def test_a_delete_horizon_leaves_the_timestamps_of_records_as_they_were(decoder: Decoder) -> None:
    data = encode_batch(sample_records(3), delete_horizon=1_900_000_000_000)
    assert batch.check(data).delete_horizon == 1_900_000_000_000
    assert decode_records(data, decoder=decoder) == sample_records(3)


@pytest.mark.parametrize("offsets", [[5, 4], [5, 5], [4], [20]])
def test_offsets_that_do_not_rise_inside_the_batch_are_not_encoded(offsets: list[int]) -> None:
    with pytest.raises(AssertionError):
        encode_batch([Record(offset) for offset in offsets], base_offset=5, last_offset_delta=9)


@both_decoders
def test_header_keys_that_are_not_utf8_lose_no_byte(decoder: Decoder) -> None:
    body = b"\x00\x00\x00" + varint(-1) * 2 + varint(1) + varint(3) + b"a\xff\xfe" + varint(-1)
    data = batch_of(varint(len(body)) + body)
    (record,) = decode_records(data, decoder=decoder)
    assert record.headers == (("a\udcff\udcfe", None),)
    assert encode_batch([record])[batch.HEADER_SIZE :] == data[batch.HEADER_SIZE :]


# --- time lookup --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "start_offset", "expected"),
    [(0, 0, 5), (50, 0, 5), (51, 0, 6), (65, 0, 6), (71, 0, None), (0, 6, 6), (51, 7, 7), (65, 7, None)],
)
def test_time_lookup_finds_the_first_record(timestamp: int, start_offset: int, expected: int | None) -> None:
    records = [Record(5, 50), Record(6, 70), Record(7, 60)]
    data = b"before" + encode_batch(records, base_offset=5, codec=Codec.GZIP)
    found = first_record_at_or_after(data, 6, timestamp, start_offset=start_offset)
    assert (found and found.offset) == expected


def test_time_lookup_goes_by_log_append_time_where_the_batch_has_one() -> None:
    data = encode_batch([Record(0, 50), Record(1, 70)], log_append_time=60)
    assert first_record_at_or_after(data, 0, 60) == Record(0, 60)
    assert first_record_at_or_after(data, 0, 61) is None


# --- other encoders and decoders ----------------------------------------------------------------------------


@both_decoders
@all_codecs
def test_batches_built_by_aiokafka_decode_to_the_same_records(decoder: Decoder, codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for record in sample_records(50):
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    data = builder.build()
    assert batch.check(data).codec == codec
    assert decode_records(data, decoder=decoder) == sample_records(50)


@both_decoders
@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS, ids=lambda codec: codec.name)
def test_batches_built_by_kafka_python_decode_to_the_same_records(decoder: Decoder, codec: Codec) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for record in sample_records(50):
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    data = builder.buffer()
    assert batch.check(data).codec == codec
    assert decode_records(data, decoder=decoder) == sample_records(50)


@all_codecs
def test_batches_we_build_are_read_by_aiokafka(codec: Codec) -> None:
    foreign = ForeignBatch(bytes(encode_batch(sample_records(50), codec=codec)))
    assert foreign.validate_crc()
    assert [
        Record(item.offset, item.timestamp, item.key, item.value, tuple(item.headers)) for item in foreign
    ] == sample_records(50)


# --- hostile bytes ------------------------------------------------------------------------------------------


MINIMAL = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6, nothing, null key, null value, no headers

HOSTILE = {
    "nothing": b"",
    "a length beyond the end": b"\x0e" + MINIMAL[1:],
    "a length too short": b"\x0a" + MINIMAL[1:],
    "a negative length": b"\x0b" + MINIMAL[1:],
    "bytes after the last record": MINIMAL + b"\x00",
    "a second record that was not announced": MINIMAL * 2,
    "a varint cut short at the end": MINIMAL[:-1] + b"\x80",
    "a varint cut short at the end that the length includes": b"\x0e" + MINIMAL[1:-1] + b"\x80",
    "a varint without end": b"\x0c\x00" + b"\xff" * 40,
    "a key of 2^63 - 1 bytes": b"\x40\x00\x00\x00" + varint(INT64_MAX) + bytes(20),
    "a key of 2^63 - 80 bytes": b"\x40\x00\x00\x00" + varint(INT64_MAX - 79) + bytes(20),
    "a key of 2^62 bytes": b"\x40\x00\x00\x00" + varint(2**62) + bytes(20),
    "a value of 2^31 - 1 bytes": b"\x40\x00\x00\x00\x01" + varint(2**31 - 1) + bytes(20),
    "2^62 headers": b"\x1c\x00\x00\x00\x01\x01" + varint(2**62) + bytes(20),
    "a negative number of headers": MINIMAL[:-1] + b"\x01",
    "a header without a key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "a header whose value is cut off": b"\x10\x00\x00\x00\x01\x01\x02\x00\x80",
    "an offset before the batch": b"\x0c\x00\x00\x01\x01\x01\x00",
    "an offset after the batch": b"\x0c\x00\x00\x02\x01\x01\x00",
}


@both_decoders
def test_the_smallest_record_is_decoded(decoder: Decoder) -> None:
    assert len(MINIMAL) == decoders.RECORD_SIZE_MIN
    assert decode_records(batch_of(MINIMAL), decoder=decoder) == [Record(0)]


@both_decoders
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_records_are_refused(decoder: Decoder, payload: bytes) -> None:
    data = batch_of(payload)
    batch.check(data)
    with pytest.raises(CorruptRecords):
        decode_records(data, decoder=decoder)


@both_decoders
def test_two_records_at_one_offset_are_refused(decoder: Decoder) -> None:
    with pytest.raises(CorruptRecords, match="offset"):
        decode_records(batch_of(MINIMAL * 2, record_count=2), decoder=decoder)


@both_decoders
def test_more_records_than_there_can_be_bytes_for_take_no_memory(decoder: Decoder) -> None:
    data = batch_of(MINIMAL * 3, record_count=2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecords):
            decode_records(data, decoder=decoder)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@both_decoders
@pytest.mark.parametrize("attributes", [5, 6, 7, 1, 2, 3, 4])
def test_records_that_are_not_compressed_as_announced_are_refused(decoder: Decoder, attributes: int) -> None:
    with pytest.raises(CorruptRecords):
        decode_records(batch_of(MINIMAL, attributes=attributes), decoder=decoder)


def test_records_beyond_the_limit_are_refused() -> None:
    data = encode_batch([Record(0, value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(TooLarge):
        decode_records(data, limit=100_000)
    assert len(decode_records(data, limit=100_100)) == 1


def test_a_batch_that_was_not_checked_is_refused_as_a_batch() -> None:
    data = encode_batch(sample_records())
    with pytest.raises(TruncatedBatch):
        decode_records(data[:-1])
    data[16] = 1
    with pytest.raises(CorruptBatch):
        decode_records(data)


@given(
    count=st.integers(1, 6),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 3),
    log_append_time=st.booleans(),
)
def test_the_decoders_agree_on_damaged_records(
    count: int, edits: list[tuple[int, int]], cut: int, log_append_time: bool
) -> None:
    payload = encode_batch(sample_records(count))[batch.HEADER_SIZE :]
    for position, byte in edits:
        payload[position % len(payload)] = byte
    attributes = batch.LOG_APPEND_TIME if log_append_time else 0
    data = batch_of(payload[: len(payload) - cut], record_count=count, attributes=attributes)
    assert outcome(data, decode_with_cython) == outcome(data, decode_with_python)


@given(payload=st.binary(max_size=60), record_count=st.integers(0, 5), codec=st.integers(0, 7))
def test_the_decoders_agree_on_arbitrary_bytes(payload: bytes, record_count: int, codec: int) -> None:
    data = batch_of(payload, record_count=record_count, attributes=codec)
    assert outcome(data, decode_with_cython) == outcome(data, decode_with_python)


def test_the_decoders_agree_on_thousands_of_mutations() -> None:
    chance = random.Random(20261115)
    original = encode_batch(sample_records(8))[batch.HEADER_SIZE :]
    refused = 0
    for _ in range(10_000):
        payload = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            position = chance.randrange(len(payload))
            payload[position] = chance.choice([chance.randrange(256), payload[position] ^ 1, 0x80, 0xFF])
        data = batch_of(payload, record_count=8)
        result = outcome(data, decode_with_cython)
        assert result == outcome(data, decode_with_python)
        refused += result is None
    assert 0 < refused < 10_000, "some mutations hit keys and values and are legal"


# --- which decoder ------------------------------------------------------------------------------------------


def run_python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout


def test_the_compiled_decoder_is_used_where_it_is_installed() -> None:
    assert decoders.best_decoder() is decode_with_cython


def test_the_plain_decoder_is_used_where_the_compiled_one_is_missing() -> None:
    program = """
import sys
sys.modules["aiokafka.record._crecords.default_records"] = None
from tailrace.records.record import Record, decode_records, encode_batch
from tailrace.records.decoders import best_decoder
print(decode_records(encode_batch([Record(0)])) == [Record(0)], best_decoder().__name__)
"""
    assert run_python(program).split() == ["True", "decode_with_python"]


def test_the_compiled_decoder_is_imported_on_first_use_only() -> None:
    program = """
import sys
from tailrace.records.record import Record, decode_records, encode_batch
batch = encode_batch([Record(0)])
before = "aiokafka" in sys.modules
decode_records(batch)
print(before, "aiokafka" in sys.modules)
"""
    assert run_python(program).split() == ["False", "True"]
