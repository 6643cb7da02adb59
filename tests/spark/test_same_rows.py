"""The rows of a batch are those that another client reads: here kafka-python, which shares no code with us."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from tailrace.spark.data_source import BatchReader
from tailrace.spark.source.options import source_options
from tailrace.testing import Broker

Options = dict[str, str]
Row = tuple[Any, ...]

both_isolations = pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])


def ours(options: Options, isolation: str = "read_uncommitted") -> list[Row]:
    given = options | {"includeHeaders": "true", "kafka.isolation.level": isolation}
    reader = BatchReader(source_options(given, is_stream=False))
    return sorted(
        row for one in reader.partitions() for batch in reader.read(one) for row in as_rows(batch.to_pylist())
    )


def as_rows(found: list[dict[str, Any]]) -> Iterator[Row]:
    for row in found:
        milliseconds = round(row["timestamp"].timestamp() * 1000)
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        yield row["partition"], row["offset"], milliseconds, row["timestampType"], row["key"], row["value"], headers


def theirs(broker: Broker, topic: str, isolation: str = "read_uncommitted") -> list[Row]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=isolation, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, partition) for partition in (0, 1)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(200).values():
                found += records
    finally:
        consumer.close()
    return sorted(
        (one.partition, one.offset, one.timestamp, one.timestamp_type, one.key, one.value, list(one.headers))
        for one in found
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_with_nulls_and_headers(broker: Broker, options: Options, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(2000):
        key = None if number % 3 == 0 else b"k%d" % number
        value = None if number % 5 == 0 else b"v%d" % number * (number % 7)
        headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("é", b"")]
        some = headers[: number % 4]
        producer.produce(topic, value, key, number % 2, timestamp=1_000 + number * 7 % 100, headers=some)
    assert producer.flush(20) == 0
    found = ours(options)
    assert len(found) == 2000
    assert found == theirs(broker, topic)


@pytest.fixture
def transactional(broker: Broker, topic: str) -> Callable[[], Producer]:
    number = iter(range(100))

    def new() -> Producer:
        name = f"{topic}-{next(number)}"
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(30)
        return producer

    return new


@both_isolations
def test_transactions_of_several_producers_committed_and_aborted(
    broker: Broker, options: Options, topic: str, transactional: Callable[[], Producer], isolation: str
) -> None:
    producers = [transactional(), transactional()]
    plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for step in range(12):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(topic, f"{step} of {number}", partition=partition)
            producer.flush(20)
        plain.produce(topic, f"{step}, outside", partition=step % 2)
        plain.flush(20)
        for number, producer in enumerate(producers):
            (producer.abort_transaction if (step + number) % 3 == 0 else producer.commit_transaction)(30)
    producers[0].begin_transaction()
    producers[0].produce(topic, "still open", partition=0)
    producers[0].flush(20)
    found = ours(options, isolation)
    assert len(found) == (12 * 4 + 12 + 1 if isolation == "read_uncommitted" else 12 * 4 * 2 // 3 + 12)
    assert found == theirs(broker, topic, isolation)
    producers[0].abort_transaction(30)


@both_isolations
def test_a_compacted_topic(
    broker: Broker, options: Options, topic: str, transactional: Callable[[], Producer], isolation: str
) -> None:
    name = f"{topic}-compacted"
    configs = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    broker.create_topic(name, partitions=2, configs=configs | {"delete.retention.ms": "0"})
    producer = transactional()
    for step in range(10):
        producer.begin_transaction()
        for number in range(40):
            value = None if number % 8 == step % 8 else f"{step}/{number}"
            producer.produce(name, value, f"k{number % (4 + step)}", number % 2)
        producer.flush(20)
        (producer.abort_transaction if step % 4 == 1 else producer.commit_transaction)(30)
        time.sleep(0.15)  # so that the segment is rolled
    some = options | {"subscribe": name}
    deadline = time.monotonic() + 60
    found = ours(some, isolation)
    while True:  # until the cleaner has come by, and did not while they were compared
        read, found = found, ours(some, isolation)
        others = theirs(broker, name, isolation)
        if len(found) < 200 and found == read == ours(some, isolation):
            break
        assert time.monotonic() < deadline, "the cleaner is not done"
        time.sleep(0.3)
    assert found == others
