from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backlogs import commit, noted
from brokers import LocalBroker
from share_fetches import GROUP, Worker
from share_requests import ShareMember

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path, {"group.share.assignment.interval.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def topic_id(broker: LocalBroker) -> bytes:
    topic_id = broker.create_topic()
    for n in range(10):
        broker.produce(b"%d" % n)
    return topic_id


def alter_all(broker: LocalBroker, starts: dict[tuple[str, int], int], group: str = GROUP, **fields: Any) -> Any:
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for (name, index), start in starts.items():
        topic = topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(topic_name=name))
        topic.partitions.append(AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start))
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()), **fields)
    return broker.ask(request, 0)


def alter(broker: LocalBroker, start: int, **fields: Any) -> int:
    response = alter_all(broker, {("orders", 0): start}, **fields)
    if response.error_code:
        return int(response.error_code)
    return int(response.responses[0].partitions[0].error_code)


def start_of(broker: LocalBroker, topic_id: bytes) -> int:
    queue = broker.broker.queues.find(GROUP, topic_id, 0)
    assert queue is not None
    assert queue.state is not None
    return queue.state.start_offset


def test_a_group_that_is_none_begins_where_it_is_told(broker: LocalBroker, topic_id: bytes) -> None:
    """Its own config would have it begin with the latest."""
    assert alter(broker, 4) == ErrorCode.NONE
    ShareMember(broker, "a", "orders").join()
    assert Worker(broker, topic_id).fetch().offsets == [4, 5, 6, 7, 8, 9]
    broker.kill()
    broker.tick(1)
    assert Worker(broker, topic_id).fetch().offsets == [4, 5, 6, 7, 8, 9]
    assert noted(broker) == []


def test_a_group_goes_back_to_records_that_it_has_finished(broker: LocalBroker, topic_id: bytes) -> None:
    alter(broker, 0)
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.accept(*range(8))
    worker.leave()
    assert alter(broker, 2) == ErrorCode.NONE
    assert Worker(broker, topic_id).fetch().acquired == [(2, 9, 1)], "as if they had never been delivered"
    assert noted(broker) == []


@pytest.mark.parametrize(("is_purge", "reason"), [(False, "reset_forward"), (True, "purged")])
def test_what_a_move_forward_leaves_unfinished_is_recorded(
    broker: LocalBroker, topic_id: bytes, is_purge: bool, reason: str
) -> None:
    alter(broker, 0)
    worker = Worker(broker, topic_id)
    worker.fetch(max_records=6, share_acquire_mode=1)
    worker.accept(1, 2)
    worker.leave()
    assert alter(broker, 9, is_purge=is_purge) == ErrorCode.NONE
    (loss,) = noted(broker)
    assert (loss.kind, loss.group, loss.first, loss.last, loss.records) == ("skipped", GROUP, 0, 8, 7)
    assert (loss.reason, loss.client_id) == (reason, "test")
    assert start_of(broker, topic_id) == 9


def test_a_group_with_members_stays_where_it_is(broker: LocalBroker, topic_id: bytes) -> None:
    member = ShareMember(broker, "a", "orders").join()
    assert alter(broker, 4) == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert alter(broker, 4) == ErrorCode.NONE


def test_an_offset_that_the_log_does_not_have_is_refused(broker: LocalBroker, topic_id: bytes) -> None:
    assert alter(broker, 11) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert alter(broker, -1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert alter(broker, 10) == ErrorCode.NONE
    broker.produce(b"new")
    assert Worker(broker, topic_id).fetch().offsets == [10]


def test_each_partition_has_its_own_error(broker: LocalBroker, topic_id: bytes) -> None:
    response = alter_all(broker, {("orders", 0): 1, ("orders", 1): 1, ("unknown", 0): 1, ("__consumer_offsets", 0): 0})
    codes = {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in response.responses
        for one in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        ("orders", 0): ErrorCode.NONE,
        ("orders", 1): unknown,
        ("unknown", 0): unknown,
        ("__consumer_offsets", 0): unknown,
    }


def test_a_group_of_another_kind_is_refused(broker: LocalBroker, topic_id: bytes) -> None:
    commit(broker, GROUP, 3)
    assert alter_all(broker, {("orders", 0): 1}).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert alter_all(broker, {("orders", 0): 1}, group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_the_response_leaves_when_group_and_state_are_on_disk(broker: LocalBroker, topic_id: bytes) -> None:
    alter(broker, 4)
    assert not broker.partition("__share_group_state").has_unflushed
    assert not broker.partition("__consumer_offsets").has_unflushed
