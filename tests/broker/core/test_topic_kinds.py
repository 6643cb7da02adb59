"""Topics of tailrace itself: what clients may do with those of the broker, and with those of services."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from backlogs import alter, delete
from brokers import LocalBroker, only_partition
from consumer_requests import Member
from transactions import TransactionalProducer, committed

from tailrace.broker.core.topics import BROKER_OWNED_TOPICS, LOSSES_TOPIC, SERVICE_TOPICS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.metadata import MetadataRequest

services = pytest.mark.parametrize("topic", sorted(SERVICE_TOPICS))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def create(broker: LocalBroker, name: str) -> int:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return int(broker.ask(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code)


def remove(broker: LocalBroker, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    return int(broker.ask(request, 6).responses[0].error_code)


def delete_records(broker: LocalBroker, name: str, before: int) -> int:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=before)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)])
    return int(only_partition(broker.ask(request, 2)).error_code)


@pytest.mark.parametrize("topic", sorted(BROKER_OWNED_TOPICS))
def test_clients_cannot_create_what_belongs_to_the_broker(broker: LocalBroker, topic: str) -> None:
    assert create(broker, topic) in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_clients_may_read_the_ledger_and_change_nothing(broker: LocalBroker) -> None:
    broker.create_topic("orders")
    broker.produce(b"gone")
    delete(broker, 1)
    broker.run_jobs()
    before = broker.values(LOSSES_TOPIC)
    assert before
    assert broker.produce(b"forged", topic=LOSSES_TOPIC).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    producer = TransactionalProducer(broker)
    assert producer.add(0, topic=LOSSES_TOPIC) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert delete_records(broker, LOSSES_TOPIC, 1) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert remove(broker, LOSSES_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.values(LOSSES_TOPIC) == before


@services
def test_clients_may_write_to_a_service_topic_and_delete_it(broker: LocalBroker, topic: str) -> None:
    assert create(broker, topic) == 0
    assert broker.produce(b"one", topic=topic).error_code == 0
    producer = TransactionalProducer(broker)
    assert producer.produce(b"two", topic=topic).error_code == 0
    producer.commit()
    assert committed(broker, topic=topic) == [b"one", b"two"]
    alter(broker, topic, retention_ms="5000")
    assert delete_records(broker, topic, 1) == 0
    assert remove(broker, topic) == 0


@services
def test_retention_applies_to_a_service_topic_and_no_loss_is_noted(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic, segment_ms="1", retention_ms="1000")
    for _ in range(3):
        broker.produce(b"old", topic=topic)
        broker.tick(10_000)
    for _ in range(40):
        broker.tick(60_000)
    assert broker.partition(topic).start_offset == 3
    assert broker.broker.topic(LOSSES_TOPIC) is None


def test_patterns_match_no_topic_of_tailrace_itself(broker: LocalBroker) -> None:
    broker.create_topic("orders")
    broker.produce(b"gone")
    delete(broker, 1)
    for topic in SERVICE_TOPICS:
        create(broker, topic)
    shown = {topic.name: topic.is_internal for topic in broker.ask(MetadataRequest(topics=None), 9).topics}
    assert {name for name, is_internal in shown.items() if not is_internal} == {"orders"}
    assert {LOSSES_TOPIC, *SERVICE_TOPICS} <= shown.keys()
    member = Member(broker, "a", subscribed_topic_regex=".*").join()
    for _ in range(3):
        broker.tick(5000)
        member.acknowledge()
    assert member.partitions == {("orders", 0)}
