"""Arrow batches as record batches: our decoder reads back what was encoded, and other clients do."""

import os
import secrets
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka import TopicPartition as ConsumerPlace
from kafka.partitioner.default import murmur2

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.records.batch import check, seal
from tailrace.records.compression import Codec
from tailrace.records.record import Record, decode_records
from tailrace.spark.sink.options import sink_options
from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow"), pytest.mark.timeout(120)]
np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("numba")
encoding = pytest.importorskip("tailrace.spark.sink.encoder")
kernel = pytest.importorskip("tailrace.spark.sink.encode_kernel")
Encoder, Rows = encoding.Encoder, encoding.Rows

NOW = 1_700_000_000_123
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PARTITIONS = {"a": 1, "b": 3, "c": 7}
any_rows = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class Row(NamedTuple):
    value: bytes | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    topic: str = "b"
    partition: int | None = None


blobs = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 63, b"x" * 64, b"y" * 9000])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows_of_any_kind = st.lists(
    st.builds(
        Row,
        blobs,
        blobs,
        st.none() | st.lists(st.tuples(texts, blobs), max_size=3),
        st.sampled_from(list(PARTITIONS)),
        st.none() | st.just(0),
    ),
    max_size=30,
)


def batch_of(rows: list[Row]) -> Any:
    headers = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers] for row in rows
    ]
    return pa.record_batch(
        {
            "value": pa.array([row.value for row in rows], pa.binary()),
            "key": pa.array([row.key for row in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "partition": pa.array([row.partition for row in rows], pa.int32()),
        }
    )


def decoded(rounds: list[dict[TopicPartition, memoryview]]) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = defaultdict(list)
    for one in rounds:
        for partition, batch in one.items():
            seal(batch)
            header = check(bytes(batch))
            assert header.size == len(batch)
            assert header.record_count == header.last_offset_delta + 1
            records = decode_records(bytes(batch))
            assert [record.offset for record in records] == list(range(header.record_count))
            assert {record.timestamp for record in records} == {NOW}
            found[partition] += records
    return found


def expected_partition(row: Row) -> int | None:
    """None where any will do."""
    if row.partition is not None or row.key is None:
        return row.partition
    return (murmur2(row.key) & 0x7FFFFFFF) % PARTITIONS[row.topic]


def shown(record: Record) -> tuple[Any, ...]:
    return record.value, record.key, list(record.headers)


def wanted(row: Row) -> tuple[Any, ...]:
    return row.value, row.key, [(key, value) for key, value in row.headers or []]


@given(
    rows=rows_of_any_kind,
    cut=st.integers(0, 5),
    codec=st.sampled_from(list(Codec)),
    limit=st.sampled_from([100, 1 << 20]),
)
@any_rows
def test_what_is_encoded_is_what_is_decoded(rows: list[Row], cut: int, codec: Codec, limit: int) -> None:
    batch = batch_of(rows := [numbered(row, number) for number, row in enumerate(rows)]).slice(cut)
    rows = rows[cut:]
    found = decoded(Encoder(PARTITIONS.__getitem__, codec, limit).encode(Rows.of(batch), NOW))
    place_of = {repr(shown(record)): place for place, records in found.items() for record in records}
    assert len(place_of) == sum(map(len, found.values())) == len(rows)
    for row in rows:
        place = place_of[repr(wanted(row))]
        assert place.topic == row.topic
        assert expected_partition(row) in (None, place.partition)
    for place, records in found.items():
        in_order = [repr(wanted(row)) for row in rows if place_of[repr(wanted(row))] == place]
        assert [repr(shown(record)) for record in records] == in_order


def numbered(row: Row, number: int) -> Row:
    """No two rows are alike."""
    if row.headers is None:
        return row._replace(value=b"%d:" % number + (row.value or b""))
    return row._replace(headers=[(str(number), None), *row.headers])


def test_text_is_written_as_its_utf8_and_large_types_as_small_ones() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        values = pa.array(["tea", None, "", "café"], pa.string()).cast(kind)
        batch = pa.record_batch({"value": values, "key": values})
        found = decoded(Encoder(lambda topic: 1).encode(Rows.of(batch, "t"), NOW))[TopicPartition("t", 0)]
        assert [record.value for record in found] == [b"tea", None, b"", "café".encode()]
        assert [record.key for record in found] == [b"tea", None, b"", "café".encode()]


def test_batches_keep_to_the_limit_and_a_larger_record_is_one_of_its_own() -> None:
    sizes = [200, 200, 200, 5000, 200, 700]
    batch = pa.record_batch({"value": pa.array([b"x" * size for size in sizes], pa.binary())})
    rounds = Encoder(lambda topic: 1, batch_bytes_max=1000).encode(Rows.of(batch, "t"), NOW)
    (partition,) = rounds[0]
    lengths = [len(one[partition]) for one in rounds]
    assert [len(decode_records(bytes(one[partition]))) for one in rounds] == [3, 1, 2]
    assert [length <= 1000 for length in lengths] == [True, False, True]


def test_columns_are_as_long_as_the_rows() -> None:
    """The kernels take that for granted."""
    rows = Rows.of(pa.record_batch({"value": pa.array(["a", "b"])}), "t")
    shorter = Rows.of(pa.record_batch({"value": pa.array(["a"])}), "t")
    for name in ("keys", "values", "lists", "topic_of", "given"):
        with pytest.raises(AssertionError, match="how long columns are"):
            replace(rows, **{name: getattr(shorter, name)})
    with pytest.raises(AssertionError, match="a header has a key and a value"):
        replace(rows, header_keys=shorter.values)


def test_rows_without_a_key_are_spread_in_runs() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 1000] * 400, pa.binary())})
    encoder = Encoder(lambda topic: 4)
    counts = [len(decoded([one])) for one in encoder.encode(Rows.of(batch, "t"), NOW)]
    assert counts == [4], "one batch for each partition"
    small = pa.record_batch({"value": pa.array([b"x"] * 100, pa.binary())})
    (one,) = encoder.encode(Rows.of(small, "t"), NOW)
    assert len(one) == 1, "few rows go together"


# The vectors of Kafka's own tests.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_java_does(key: bytes, hashed: int) -> None:
    assert hash_of(key) == hashed & 0xFFFFFFFF


@given(st.binary(max_size=70))
@settings(deadline=None)
def test_keys_are_hashed_as_kafka_python_does(key: bytes) -> None:
    assert hash_of(key) == murmur2(key) & 0xFFFFFFFF


def hash_of(key: bytes) -> int:
    data = np.frombuffer(b"__" + key + b"__", np.uint8)
    return int(kernel.murmur2_of(data, np.array([[2, len(key)]], np.int32)))


# Fingerprints


@given(rows=rows_of_any_kind, data=st.data())
@any_rows
def test_a_fingerprint_does_not_depend_on_order_or_on_how_rows_are_cut(rows: list[Row], data: Any) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    whole = Rows.of(batch_of(rows)).fingerprint()
    batch = batch_of(shuffled)
    parts = Rows.of(batch.slice(0, cut)).fingerprint() + Rows.of(batch.slice(cut)).fingerprint()
    assert (whole - parts) % (1 << 64) == 0


@given(rows=st.lists(rows_of_any_kind, min_size=2, max_size=2))
@any_rows
def test_other_rows_have_another_fingerprint(rows: list[list[Row]]) -> None:
    plain = [sorted(repr(row._replace(headers=row.headers or [])) for row in some) for some in rows]
    first, second = (Rows.of(batch_of(some)).fingerprint() for some in rows)
    assert (first == second) == (plain[0] == plain[1])


def test_what_lies_in_another_field_is_another_row() -> None:
    variants = [
        *(Row(b"ab", b""), Row(b"a", b"b"), Row(b"", b"ab"), Row(b"ab", None), Row(None, b"ab")),
        *(Row(b"ab", None, [("", b"")]), Row(b"ab", None, [("", None)]), Row(b"ab", None, [("a", b"b")])),
        *(Row(b"ab", partition=0), Row(b"ab", partition=1), Row(b"ab", topic="a"), Row(b"ab\0"), Row(b"\0ab")),
    ]
    assert len({Rows.of(batch_of([row])).fingerprint() for row in variants}) == len(variants)


# What cannot be written


def test_a_partition_that_is_not_there_is_named() -> None:
    encoder = Encoder(PARTITIONS.__getitem__)
    with pytest.raises(encoding.BadRows, match="partition 3 of topic b, which has 3 partitions"):
        encoder.encode(Rows.of(batch_of([Row(b"a"), Row(b"a", partition=3)])), NOW)
    with pytest.raises(encoding.BadRows, match="partition -1: they are counted from 0"):
        Rows.of(batch_of([Row(b"a", partition=-1)]))


def test_a_row_without_a_topic_and_a_header_without_a_key_are_refused() -> None:
    value = pa.array([b"a", b"b"], pa.binary())
    for topics in ({}, {"topic": pa.array(["t", None])}):
        with pytest.raises(encoding.BadRows, match="a row has no topic"):
            Rows.of(pa.record_batch({"value": value, **topics}))
        assert Rows.of(pa.record_batch({"value": value, **topics}), "t").topics == ("t",)
    for wrong in ([{"key": None, "value": b"x"}], [None]):
        with pytest.raises(encoding.BadRows, match="a header has no key"):
            Rows.of(pa.record_batch({"value": value, "headers": pa.array([None, wrong], HEADERS)}), "t")


def test_no_rows_are_no_batches() -> None:
    assert Encoder(PARTITIONS.__getitem__).encode(Rows.of(batch_of([])), NOW) == []
    assert Rows.of(batch_of([])).fingerprint() == 0


def test_columns_that_are_mixed_up_are_not_read_beyond_their_end() -> None:
    """Nothing says so on the way from Arrow; and the kernels ask all the same."""
    rows = Rows.of(batch_of([Row(b"abc", b"k", [("h", b"v")])]))
    for name in ("keys", "values", "header_keys", "header_values"):
        wrong = getattr(rows, name)._replace(data=np.empty(0, np.uint8))
        with pytest.raises(AssertionError):
            replace(rows, **{name: wrong}).fingerprint()
        with pytest.raises((AssertionError, encoding.BadRows)):
            Encoder(PARTITIONS.__getitem__).encode(replace(rows, **{name: wrong}), NOW)
    beyond = replace(rows, lists=np.array([[0, 2]], np.int32))
    with pytest.raises(AssertionError):
        beyond.fingerprint()
    with pytest.raises(AssertionError):
        Encoder(PARTITIONS.__getitem__).encode(beyond, NOW)


def outside() -> None:
    """What the kernels are never asked: room for one slot too few."""
    fields, numbers = np.full((2, 2), -1, np.int32), np.zeros(1, np.int32)
    places = np.array([[0, 1, 0, 0]], np.int64)
    kernel.assign_slots(np.zeros(1, np.uint8), fields, fields, numbers, numbers, places, 1, np.zeros(2, np.int32))


@pytest.mark.slow
def test_no_index_is_outside_of_its_array(tmp_path: Path) -> None:
    """The same again, with kernels compiled so that they check each index."""
    program = """
import test_encoder as tests
try:
    tests.outside()
except IndexError:
    print("indexes are checked")
tests.test_what_is_encoded_is_what_is_decoded()
tests.test_a_fingerprint_does_not_depend_on_order_or_on_how_rows_are_cut()
tests.test_keys_are_hashed_as_kafka_python_does()
tests.test_columns_that_are_mixed_up_are_not_read_beyond_their_end()
"""
    here = Path(__file__).parent
    paths = os.pathsep.join(
        [str(here), str(here.parents[1] / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "indexes are checked\n", "")


# On a broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_what_is_written(broker: Broker, codec: str) -> None:
    from tailrace.spark.sink.writer import write

    topic = f"written-{secrets.token_hex(4)}"
    broker.create_topic(topic, partitions=3)
    rows = [Row(b"value %d" % n, b"key %d" % n, [("n", b"%d" % n)], topic) for n in range(1000)]
    batch = batch_of(rows).drop_columns(["topic"])
    properties = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": codec, "topic": topic}
    for _ in range(2):  # by a new producer, and by the one that was kept
        assert write(sink_options(properties), [batch.slice(0, 600), batch.slice(600)]) == 1000
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([ConsumerPlace(topic, number) for number in range(3)])
    found = [next(consumer) for _ in range(2000)]
    consumer.close()
    assert sorted((one.value, one.key, tuple(one.headers)) for one in found) == sorted(
        2 * [(row.value, row.key, tuple(row.headers or [])) for row in rows]
    )
    assert all(one.partition == (murmur2(one.key) & 0x7FFFFFFF) % 3 for one in found)
