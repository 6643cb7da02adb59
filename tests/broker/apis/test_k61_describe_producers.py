from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker

from tailrace.broker.core.delayed import STEPS_AT_ONCE
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest


def describe(broker: LocalBroker, topic: str = "orders", *indexes: int) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes or (0,)))])
    (answer,) = broker.ask(request, 0).topics
    assert answer.name == topic
    return answer.partitions


def test_those_that_have_appended_are_told_with_their_last_batch(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
        broker.produce(b"c", producer_id=7, producer_epoch=3, base_sequence=2)
        broker.now_ms += 5
        broker.produce(b"d", producer_id=8, producer_epoch=0, base_sequence=0)
        broker.produce(b"nobody")
        (answer,) = describe(broker)
        assert answer.error_code == 0
        found = [
            (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
            for one in answer.active_producers
        ]
        assert found == [(7, 3, 2, NOW_MS), (8, 0, 0, NOW_MS + 5)]
        assert {(one.coordinator_epoch, one.current_txn_start_offset) for one in answer.active_producers} == {(-1, -1)}
        (other,) = describe(broker, "orders", 1)
        assert (other.error_code, other.active_producers) == (0, [])


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_they_are_known_after_a_start(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a", producer_id=7, producer_epoch=3, base_sequence=0)
        before = describe(broker)
        getattr(broker, how)()
        assert describe(broker) == before


def test_a_partition_that_is_not_there(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for answer in (*describe(broker, "nobody"), *describe(broker, "orders", 1, -1)):
            assert (answer.error_code, answer.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_many_are_gone_through_in_turns(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for producer_id in range(2 * STEPS_AT_ONCE):
            broker.produce(b"x", acks=1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        broker.hold_jobs = True
        later = broker.begin(DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])]), 0)
        assert not later.is_resolved
        broker.hold_jobs = False
        (answer,) = describe(broker)
        assert [one.producer_id for one in answer.active_producers] == list(range(2 * STEPS_AT_ONCE))
