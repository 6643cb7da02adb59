"""`format("tailrace")` in a real Spark: found by itself, in batches and as a stream."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]

Options = dict[str, str]
Produce = Callable[..., None]


def load(spark: Any, options: Options, **more: str) -> Any:
    return spark.read.format("tailrace").options(**options, **more).load()


def texts(frame: Any) -> list[str]:
    return sorted(row.v for row in frame.selectExpr("CAST(value AS STRING) v").collect())


# Batches


def test_a_row_has_all_that_a_message_has(spark: Any, options: Options, topic: str, produce: Produce) -> None:
    produce("tea", partition=1, key="k", timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None)])
    produce(None, partition=1)
    frame = load(spark, options, includeHeaders="true")
    first, second = frame.orderBy("offset").collect()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"tea", topic, 1, 0)
    assert first.timestamp.astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert (first.timestampType, [tuple(header) for header in first.headers]) == (0, [("a", b"1"), ("a", None)])
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(spark: Any, broker: Broker, options: Options, topic: str, codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(3000):
        producer.produce(topic, f"message {number}", partition=number % 2)
    assert producer.flush(20) == 0
    assert texts(load(spark, options)) == sorted(f"message {number}" for number in range(3000))


def test_a_range_is_what_is_between_its_bounds(spark: Any, options: Options, topic: str, produce: Produce) -> None:
    produce(*"abcdef")
    produce("x", partition=1)
    start, end = (f'{{"{topic}": {{"0": {first}, "1": {second}}}}}' for first, second in ((2, 1), (5, -1)))
    some = {"minPartitions": "3", "columns": "offset,value"}
    frame = load(spark, options | some, startingOffsets=start, endingOffsets=end)
    assert frame.columns == ["offset", "value"]
    assert frame.rdd.getNumPartitions() == 3
    assert texts(frame) == ["c", "d", "e"]


def test_times_are_bounds_too(spark: Any, options: Options, produce: Produce) -> None:
    for number in range(5):
        produce(str(number), timestamp=1_700_000_000_000 + number * 1000)
    later = {"startingOffsetsByTimestampStrategy": "latest"}
    frame = load(spark, options | later, startingTimestamp="1700000001000", endingTimestamp="1700000003000")
    assert texts(frame) == ["1", "2"]


def test_a_row_before_the_ending_time_is_not_lost_behind_a_later_one(
    spark: Any, options: Options, produce: Produce
) -> None:
    for time_ms in (100, 300, 200):
        produce(str(time_ms), timestamp=time_ms)
    assert texts(load(spark, options, endingTimestamp="250")) == ["100", "200"]


@pytest.mark.parametrize("is_on", [False, True])
def test_filters_are_pushed_down_where_spark_and_the_user_want_it(
    spark: Any, options: Options, topic: str, produce: Produce, is_on: bool
) -> None:
    for number in (0, 3, 1, 2):
        produce(str(number), timestamp=1_700_000_000_000 + number * 1000)
    produce("other", partition=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_on).lower())
    try:
        rows = load(spark, options, filterPushdown="true")
        rows = rows.where("partition = 0 AND `offset` >= 1").where(f"topic = '{topic}'")
        rows = rows.where("timestamp > timestamp'2023-11-14 22:13:20Z' AND timestamp < timestamp'2023-11-14 22:13:23Z'")
        assert texts(rows) == ["1", "2"]
        assert rows.rdd.getNumPartitions() == (1 if is_on else 2), "what is not wanted is not planned"
        plain = load(spark, options)
        assert (plain.where("`offset` = 1").count(), plain.count()) == (1, 5), "who did not ask is not affected"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_another_schema_is_refused(spark: Any, options: Options, tmp_path: Path) -> None:
    said = "the schema is fixed, and cannot be struct<price:int>: it is struct<key:binary,value:binary,"
    with pytest.raises(Exception, match=said):
        spark.read.format("tailrace").options(**options).schema("price INT").load().count()
    stream = spark.readStream.format("tailrace").options(**options).schema("price INT").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=said):
        query.awaitTermination(60)
    ours = load(spark, options, columns="offset,value")
    assert (
        spark.read.format("tailrace").options(**options, columns="offset,value").schema(ours.schema).load().count() == 0
    )


def test_a_topic_without_messages_is_empty(spark: Any, options: Options) -> None:
    assert load(spark, options).count() == 0


def test_what_is_wrong_with_options_is_said_in_a_line(spark: Any, options: Options) -> None:
    with pytest.raises(Exception, match="onDataLoss is one of fail, earliest, report"):
        load(spark, options, onDataLoss="shrug").count()


# Tables


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Iterator[str]:
    """A database of its own."""
    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path}/shop'")
    yield "shop"
    spark.sql("DROP DATABASE shop CASCADE")


def test_a_table_in_sql_is_read_as_it_is_now(
    spark: Any, options: Options, topic: str, produce: Produce, tmp_path: Path, shop: str
) -> None:
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    described = "COMMENT 'orders' TBLPROPERTIES ('owned.by' = 'us')"
    spark.sql(f"CREATE TABLE {shop}.sold USING tailrace OPTIONS ({given}) {described}")
    for number in (1, 2):
        produce(str(number))
        assert spark.table(f"{shop}.sold").count() == number
    behind_one = f"""WITH ('startingOffsets' = '{{"{topic}": {{"0": 1, "1": 0}}}}')"""
    assert texts(spark.sql(f"SELECT value FROM {shop}.sold {behind_one}")) == ["2"]
    stream = spark.readStream.option("startingOffsets", "earliest").table(f"{shop}.sold").selectExpr("string(value) v")
    writer = stream.writeStream.format("memory").queryName("sold_rows").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
    assert rows(spark, "sold_rows") == ["1", "2"]
    with pytest.raises(Exception, match="a table is for reading"):
        spark.sql(f"INSERT INTO {shop}.sold (value) VALUES (CAST('x' AS BINARY))")


def test_a_table_in_sql_has_no_passwords_and_no_columns_of_its_own(spark: Any, options: Options, shop: str) -> None:
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    with pytest.raises(Exception, match=r"kafka\.sasl\.password cannot be an option of a table"):
        spark.sql(f"CREATE TABLE {shop}.sold USING tailrace OPTIONS ({given}, 'kafka.sasl.password' = 'x')")
    spark.sql(f"CREATE TABLE {shop}.sold (price INT) USING tailrace OPTIONS ({given})")
    with pytest.raises(Exception, match="is created without columns"):
        spark.table(f"{shop}.sold").collect()


# Streams


def start(spark: Any, options: Options, checkpoint: Path, into: str | None = None, **trigger: Any) -> Any:
    """A query whose rows become a table, or nothing: only the latter can go on from a checkpoint."""
    stream = spark.readStream.format("tailrace").options(**options).load().selectExpr("CAST(value AS STRING) v")
    writer = stream.writeStream.format("memory" if into else "noop").option("checkpointLocation", str(checkpoint))
    writer = writer.queryName(into) if into else writer
    return (writer.trigger(**trigger) if trigger else writer).start()


def rows(spark: Any, table: str) -> list[str]:
    return sorted(row.v for row in spark.sql(f"SELECT v FROM {table}").collect())


def test_a_stream_reads_on_and_its_group_is_where_it_is(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce("a", "b")
    group = f"etl-{topic}"
    with_group = options | {"startingOffsets": "earliest", "group": group}
    query = start(spark, with_group, tmp_path / "checkpoint", "on")
    try:
        query.processAllAvailable()
        produce("c", partition=1)
        query.processAllAvailable()
        assert rows(spark, "on") == ["a", "b", "c"]
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
        deadline = time.monotonic() + 10
        while True:
            places = consumer.committed([TopicPartition(topic, n) for n in (0, 1)], timeout=10)
            if [place.offset for place in places] == [2, 1]:
                break
            assert time.monotonic() < deadline, places
            time.sleep(0.05)
        consumer.close()
    finally:
        query.stop()


def test_the_lag_that_others_see_is_that_of_the_batches_that_are_done(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    group, is_let_go = f"etl-{topic}", threading.Event()

    def lag() -> int:
        asked = ConsumerGroupTopicPartitions(group)
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        committed = {one.partition: one.offset for one in future.result(10).topic_partitions}
        ends = admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in (0, 1)})
        return sum(end.result(10).offset - committed[place.partition] for place, end in ends.items())

    def is_soon(expected: int) -> bool:
        deadline = time.monotonic() + 30
        while (found := lag()) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        return found == expected

    stream = spark.readStream.format("tailrace").options(**options, startingOffsets="earliest", group=group).load()
    writer = stream.writeStream.foreachBatch(lambda frame, batch: batch == 1 and is_let_go.wait(60))
    produce("a", "b", "c")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        while not (tmp_path / "offsets" / "1").exists():
            time.sleep(0.05)
        produce("d", partition=1)
        assert lag() == 4, "nothing is done, and all that is there is behind"
        is_let_go.set()
        assert is_soon(0), "at idle"
        produce("e")
        assert is_soon(0)
    finally:
        is_let_go.set()
        query.stop()


def test_available_now_reads_what_is_there_in_batches_and_ends(
    spark: Any, options: Options, produce: Produce, tmp_path: Path
) -> None:
    produce(*map(str, range(20)))
    limited = options | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    query = start(spark, limited, tmp_path / "checkpoint", "now", availableNow=True)
    assert query.awaitTermination(60)
    assert rows(spark, "now") == sorted(map(str, range(20)))
    assert sum(progress["numInputRows"] > 0 for progress in query.recentProgress) == 4


def test_deleted_records_end_a_query_with_the_range_that_is_missing(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(*"abc")
    first = start(spark, options | {"startingOffsets": "earliest"}, tmp_path / "checkpoint", availableNow=True)
    assert first.awaitTermination(60)
    produce(*"defgh")
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in client.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(10)
    second = start(spark, options, tmp_path / "checkpoint", availableNow=True)
    with pytest.raises(Exception, match=f"{topic}-0: offsets 3 to 5 are missing"):
        second.awaitTermination(60)
