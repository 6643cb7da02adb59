"""What consumers see of retention: those in the middle of what is deleted are told, or reset; others see nothing."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

HOUR_MS = 3_600_000
SETTINGS = {"log.retention.check.interval.ms": "100"}
KAFKAS = {"log.initial.task.delay.ms": "100"}  # half a minute


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = SETTINGS | (KAFKAS if against_kafka() else {})
    with contextlib.closing(new_broker(tmp_path / "broker", settings=settings)) as broker:
        broker.start()
        yield broker


def fill(client: ConfluentClient) -> None:
    """Five messages of two hours ago, and five of now, each in a segment of its own; an hour is kept."""
    client.create_topic("orders", configs={"segment.ms": "1", "retention.ms": str(2 * HOUR_MS)})
    now_ms = int(time.time() * 1000)
    for number in range(10):
        age_ms = 0 if number >= 5 else HOUR_MS + 60_000
        client.produce("orders", [Message(b"%d" % number, timestamp=now_ms - age_ms)])
        time.sleep(0.005)


def a_consumer(broker: BrokerProcess, offset: int, reset: str) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": reset, "log_level": 0}
    )
    consumer.assign([TopicPartition("orders", 0, offset)])
    return consumer


def next_of(consumer: Consumer) -> tuple[int | None, int | None]:
    """The next offset, or the code of an error."""
    message = consumer.poll(20)
    assert message is not None
    error = message.error()
    return (None, error.code()) if error is not None else (message.offset(), None)


def test_a_consumer_in_what_was_deleted_is_reset_or_told_and_one_behind_it_reads_on(broker: BrokerProcess) -> None:
    client = ConfluentClient(broker.bootstrap)
    fill(client)
    behind = a_consumer(broker, OFFSET_BEGINNING, "error")
    assert [next_of(behind)[0] for _ in range(10)] == list(range(10)), "nothing has expired"
    client.set_configs("orders", {"retention.ms": str(HOUR_MS)})
    deadline = time.monotonic() + 30
    while client.offset("orders", "earliest") != 5:
        assert time.monotonic() < deadline, "it is not deleted"
        time.sleep(0.02)
    for reset, expected in (("earliest", (5, None)), ("error", (None, KafkaError._AUTO_OFFSET_RESET))):
        with contextlib.closing(a_consumer(broker, 2, reset)) as consumer:
            assert next_of(consumer) == expected
    client.produce("orders", [Message(b"10")])
    assert next_of(behind) == (10, None), "who has read on is not disturbed"
    behind.close()
    client.close()
