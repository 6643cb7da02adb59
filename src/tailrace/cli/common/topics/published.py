"""Reads topics in which a tailrace broker publishes what it knows, and single messages, with confluent-kafka."""

import time
from collections.abc import Iterator, Mapping

from tailrace.cli.common.client import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Partition

_MANY = 10_000  # messages at a time
_PROPERTIES = {
    "group.id": "tailrace-published",  # librdkafka wants one, and the broker never hears of it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
}


def all_of(connection: Connection, topic: str) -> Iterator[Message]:
    """Yields the messages of a topic of one partition, up to its end."""
    consumer = connection.consumer(_PROPERTIES)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        for message in _messages(connection, consumer, f"{topic} cannot be read"):
            if message is None:
                return
            yield message
    finally:
        consumer.close()


def timestamps_at(connection: Connection, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """Returns the timestamps of the first messages at these offsets or behind them, where there are any."""
    if not offsets:
        return {}
    consumer = connection.consumer({**_PROPERTIES, "max.partition.fetch.bytes": 1 << 10})
    found, ended = dict[Partition, int](), 0
    try:
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in offsets.items()])
        for message in _messages(connection, consumer, "messages cannot be read"):
            if message is None:
                ended += 1
            else:
                found.setdefault(Partition(str(message.topic()), int(message.partition() or 0)), message.timestamp()[1])
            if len(found) + ended >= len(offsets):
                break
    finally:
        consumer.close()
    return found


def _messages(connection: Connection, consumer: Consumer, doing: str) -> Iterator[Message | None]:
    """Yields messages, and None at the end of a partition."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        for message in consumer.consume(_MANY, 0.1):
            deadline = time.monotonic() + REQUEST_SECONDS
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                yield None
            else:
                raise connection.failure(error, doing)
        if time.monotonic() > deadline:
            if connection.is_away:
                raise Failure(connection.not_reachable(), ExitCode.NOT_REACHABLE)
            raise Failure(f"{doing}: {connection.trouble}")
