"""What real clients skip is in the loss ledger, and what they read is not."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.contract import Message
from compat.test_group_tools import TOOL
from compat.tools import Tools
from confluent_kafka import Consumer, TopicPartition

from tailrace.facts import losses
from tailrace.facts.losses import Loss, LossReason

pytestmark = pytest.mark.skipif(against_kafka(), reason="Kafka has no loss ledger")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with contextlib.closing(
        new_broker(tmp_path / "broker", settings={"group.initial.rebalance.delay.ms": "0"})
    ) as broker:
        broker.start()
        yield broker


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ConfluentClient]:
    with contextlib.closing(ConfluentClient(broker.bootstrap)) as client:
        client.create_topic("orders")
        client.produce("orders", [Message(b"%d" % number) for number in range(10)])
        yield client


@contextlib.contextmanager
def consumer(broker: BrokerProcess, **config: Any) -> Iterator[Consumer]:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    opened = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "enable.auto.commit": False, **settings}
    )
    try:
        yield opened
    finally:
        opened.close()


def read(reader: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    return found


def skipped(broker: BrokerProcess) -> list[Loss]:
    with consumer(broker, group_id="auditor", auto_offset_reset="earliest", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition("__tailrace_losses", 0, 0)])
        found = []
        while (message := reader.poll(20)) is not None and message.error() is None:
            found.append(losses.decode(message.value() or b""))
    return [loss for loss in found if loss.kind == "skipped"]


def stop_after(broker: BrokerProcess, count: int) -> None:
    """A member reads so many messages, commits, and leaves."""
    with consumer(broker, auto_offset_reset="earliest", client_id="worker") as reader:
        reader.subscribe(["orders"])
        read(reader, count)
        reader.commit(offsets=[TopicPartition("orders", 0, count)], asynchronous=False)


def test_a_consumer_that_has_fallen_off_and_begins_at_latest(broker: BrokerProcess, client: ConfluentClient) -> None:
    stop_after(broker, 3)
    client.delete_records("orders", 5)
    with consumer(broker, auto_offset_reset="latest", client_id="worker") as reader:
        reader.subscribe(["orders"])
        deadline = time.monotonic() + 30
        while reader.position([TopicPartition("orders", 0)])[0].offset < 10:
            assert time.monotonic() < deadline
            reader.poll(0.1)
            client.produce("orders", [Message(b"new")])
        position = reader.position([TopicPartition("orders", 0)])[0].offset
        reader.commit(offsets=[TopicPartition("orders", 0, position)], asynchronous=False)
    (loss,) = skipped(broker)
    assert (loss.group, loss.topic, loss.partition, loss.first) == ("billing", "orders", 0, 5)
    assert 9 <= loss.last < position
    assert (loss.reason, loss.exact, loss.client_id) == (LossReason.RESET_FORWARD, False, "worker")


def test_consumers_that_assign_partitions_skip_nothing(broker: BrokerProcess, client: ConfluentClient) -> None:
    with consumer(broker, client_id="worker") as reader:
        reader.assign([TopicPartition("orders", 0, 0)])
        for offset in (3, 6, 9):
            read(reader, 3)
            reader.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    client.delete_records("orders", 2)  # from here on there is a ledger
    assert skipped(broker) == []


@pytest.mark.needs("kafka")
def test_kafkas_tool_resets_a_group_to_the_end(broker: BrokerProcess, client: ConfluentClient, tools: Tools) -> None:
    stop_after(broker, 4)
    how = ("--reset-offsets", "--group", "billing", "--topic", "orders", "--to-latest", "--execute")
    tools.run(TOOL, "--bootstrap-server", broker.bootstrap, *how)
    (loss,) = skipped(broker)
    assert (loss.group, loss.first, loss.last, loss.records) == ("billing", 4, 9, 6)
    assert (loss.reason, loss.exact) == (LossReason.RESET_FORWARD, False)
