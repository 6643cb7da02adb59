"""Writing with `format("tailrace")` in a real Spark, in batches and as a stream."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner.default import murmur2

from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]

Options = dict[str, str]


@pytest.fixture
def sink(broker: Broker) -> tuple[str, Options]:
    """A topic of three partitions, and the options to write to it."""
    name = f"out-{secrets.token_hex(4)}"
    broker.create_topic(name, partitions=3)
    return name, {"kafka.bootstrap.servers": broker.bootstrap, "topic": name}


@pytest.fixture
def consume(broker: Broker) -> Callable[..., list[Any]]:
    """All messages of a topic, of what is committed."""

    def read(topic: str, partitions: int = 3) -> list[Any]:
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed")
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [message for some in consumer.poll(1000).values() for message in some]
        consumer.close()
        return found

    return read


def texts(messages: list[Any]) -> list[str]:
    return sorted(message.value.decode() for message in messages)


def append(frame: Any, options: Options, **more: str) -> None:
    frame.write.format("tailrace").options(**options, **more).mode("append").save()


# Batches


def test_a_message_has_all_that_a_row_has(spark: Any, broker: Broker, sink: Any, consume: Any) -> None:
    topic, options = sink
    other = f"{topic}-too"
    broker.create_topic(other)
    schema = "key string, value binary, topic string, partition int, headers array<struct<key: string, value: binary>>"
    rows = [
        ("k", bytearray(b"tea"), topic, None, [("a", bytearray(b"1")), ("a", None)]),
        (None, bytearray(b"coffee"), topic, 2, []),
        ("k", None, topic, 1, None),
        (None, bytearray(b""), other, None, None),
    ]
    del options["topic"]
    append(spark.createDataFrame(rows, schema), options)
    found = {(one.key, one.value, one.partition, tuple(one.headers)) for one in consume(topic)}
    assert found == {
        (b"k", b"tea", (murmur2(b"k") & 0x7FFFFFFF) % 3, (("a", b"1"), ("a", None))),
        (None, b"coffee", 2, ()),
        (b"k", None, 1, ()),
    }
    assert [one.value for one in consume(other, 1)] == [b""]


def test_many_rows_are_there_once_in_every_codec(spark: Any, sink: Any, consume: Any) -> None:
    topic, options = sink
    for codec in ("none", "lz4"):
        frame = spark.range(0, 10_000, 1, 3).selectExpr(f"concat('{codec} ', id) value", "cast(id as string) key")
        append(frame, options | {"kafka.compression.type": codec})
    wanted = [f"{codec} {number}" for codec in ("none", "lz4") for number in range(10_000)]
    assert texts(consume(topic)) == sorted(wanted)


def test_what_cannot_be_written_is_said_in_a_line(spark: Any, sink: Any, consume: Any) -> None:
    topic, options = sink
    for columns, said in (
        (["'a' value", "1 price"], "column 'price' cannot be written"),
        (["'a' value", "int(id * 7) partition"], "partition 7 of topic out-.*, which has 3 partitions"),
    ):
        with pytest.raises(Exception, match=said):
            append(spark.range(0, 2, 1, 1).selectExpr(*columns), options)
    assert consume(topic) == []


def test_a_topic_is_needed_and_is_only_appended_to(spark: Any, sink: Any, consume: Any) -> None:
    topic, options = sink
    frame = spark.range(1).selectExpr("'a' value")
    with pytest.raises(Exception, match="no topic to write to"):
        append(frame, {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"]})
    append(frame, options | {"topic": f"{topic}-new"})
    assert texts(consume(f"{topic}-new", 1)) == ["a"], "brokers create topics that are written to"
    with pytest.raises(Exception, match="a topic cannot be overwritten: mode is append"):
        frame.write.format("tailrace").options(**options).mode("overwrite").save()
    assert consume(topic) == []


# Streams


def start(spark: Any, source: Options, options: Options, checkpoint: Path) -> Any:
    stream = spark.readStream.format("tailrace").options(**source, startingOffsets="earliest").load()
    writer = stream.selectExpr("key", "upper(CAST(value AS STRING)) value").writeStream.format("tailrace")
    writer = writer.options(**options).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def test_a_stream_goes_from_topic_to_topic(
    spark: Any, options: Options, sink: Any, consume: Any, produce: Callable[..., None], tmp_path: Path
) -> None:
    topic, to = sink
    for round_of in ("abc", "de"):
        produce(*round_of)
        produce(round_of + "!", partition=1)
        query = start(spark, options, to, tmp_path / "checkpoint")
        assert query.awaitTermination(60)
    assert texts(consume(topic)) == sorted(["A", "B", "C", "ABC!", "D", "E", "DE!"])


def test_a_batch_that_is_run_again_after_a_crash(
    spark: Any, options: Options, sink: Any, consume: Any, produce: Callable[..., None], tmp_path: Path
) -> None:
    """Spark forgets that the last batch is done: it is there once."""
    topic, to = sink
    produce(*"abc")
    produce("d", partition=1)
    assert start(spark, options, to, tmp_path / "checkpoint").awaitTermination(60)
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    produce("e")
    assert start(spark, options, to, tmp_path / "checkpoint").awaitTermination(60)
    assert texts(consume(topic)) == sorted("ABCDE")
