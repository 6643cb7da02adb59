"""The broker in a test's process, and the fixtures that pytest users have of it."""

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from waits import until

from tailrace.testing import Broker


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


def test_a_broker_serves_a_real_client_and_is_gone_afterwards() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        write(broker.bootstrap, "orders", b"one", b"two")
        assert read(broker.bootstrap, "orders", 2) == [b"one", b"two"]
        data = Path(broker.data)
        assert data.exists()
    assert not data.exists()
    assert set(threading.enumerate()) <= before


def test_what_a_broker_has_kept_is_there_after_a_restart_on_the_same_port() -> None:
    with Broker() as broker:
        write(broker.bootstrap, "orders", b"one")
        before = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == before
        assert read(before, "orders", 1) == [b"one"]


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    with Broker(data=str(tmp_path / "data")) as broker:
        broker.create_topic("orders", partitions=3)
    with Broker(data=str(tmp_path / "data")) as broker:
        assert broker.node.broker.metadata.topics["orders"].partition_count == 3


def test_configs_are_those_of_a_broker(tmp_path: Path) -> None:
    with Broker({"num.partitions": "7"}) as broker:
        write(broker.bootstrap, "orders", b"one")
        assert broker.node.broker.metadata.topics["orders"].partition_count == 7


def test_a_topic_that_cannot_be_is_refused_in_words() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="characters other than"):
        broker.create_topic("no such name!")


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with Broker(data=str(tmp_path)), pytest.raises(Exception, match="in use"):
        Broker(data=str(tmp_path)).start()


def test_two_brokers_live_side_by_side_in_one_process() -> None:
    with Broker() as one, Broker() as other:
        write(one.bootstrap, "orders", b"one")
        write(other.bootstrap, "orders", b"other")
        assert read(one.bootstrap, "orders", 1) == [b"one"]
        assert read(other.bootstrap, "orders", 1) == [b"other"]


def test_the_fixtures_give_a_broker_and_a_topic_of_ones_own(
    tailrace_broker: Broker, tailrace_topic: str, tailrace_fresh_broker: Broker
) -> None:
    write(tailrace_broker.bootstrap, tailrace_topic, b"one")
    assert read(tailrace_broker.bootstrap, tailrace_topic, 1) == [b"one"]
    assert tailrace_fresh_broker.bootstrap != tailrace_broker.bootstrap
    assert tailrace_topic not in tailrace_fresh_broker.node.broker.metadata.topics
    assert tailrace_topic.startswith("test_the_fixtures_give")


@pytest.mark.parametrize("what", ["a/b", "ü", "x" * 300])
def test_a_topic_is_called_after_its_test_whatever_that_is_called(what: str, tailrace_topic: str) -> None:
    assert tailrace_topic


def test_a_queue_has_locks_as_short_as_a_test_needs_them() -> None:
    with Broker() as broker, ExitStack() as stack:
        broker.create_topic("orders")
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "100"}
        broker.set_group_configs("workers", configs)
        write(broker.bootstrap, "orders", b"tea")
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 0}
        for attempt in (1, 2, 3):  # each worker takes it, and does nothing
            worker = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
            stack.callback(worker.close)
            worker.subscribe(["orders"])
            (message,) = until(lambda: list(worker.poll(1)))  # noqa: B023 - it is called at once
            assert (message.value(), message.delivery_count()) == (b"tea", attempt)


def test_a_group_config_that_is_refused_is_an_error() -> None:
    with Broker() as broker, pytest.raises(ValueError, match=r"share\.record\.lock\.duration\.ms"):
        broker.set_group_configs("workers", {"share.record.lock.duration.ms": "0"})
