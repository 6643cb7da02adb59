from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backlogs import noted
from brokers import LocalBroker
from share_fetches import GROUP, Worker, set_configs
from share_requests import ShareMember

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path, {"group.share.assignment.interval.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def member(broker: LocalBroker) -> ShareMember:
    """A member of a group that reads two topics, and has finished one of three records in the first."""
    set_configs(broker, share_auto_offset_reset="earliest")
    topic_id = broker.create_topic()
    broker.create_topic("events")
    member = ShareMember(broker, "a", "orders", "events").join()
    broker.produce(b"a", b"b", b"c")
    worker = Worker(broker, topic_id)
    worker.fetch()
    worker.accept(1)
    worker.leave()
    return member


def delete(broker: LocalBroker, *topics: str, group: str = GROUP) -> Any:
    named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return broker.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=named), 0)


def topics_of(broker: LocalBroker) -> set[str]:
    return {queue.partition.topic.name for queue in broker.broker.queues.all()}


def test_a_group_forgets_a_topic_and_what_it_had_not_finished_is_recorded(
    broker: LocalBroker, member: ShareMember
) -> None:
    member.leave()
    response = delete(broker, "orders", "unknown")
    assert response.error_code == ErrorCode.NONE
    assert {one.topic_name: one.error_code for one in response.responses} == {
        "orders": ErrorCode.NONE,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (loss,) = noted(broker)
    assert (loss.group, loss.first, loss.last, loss.records, loss.reason) == (GROUP, 0, 2, 2, "group_deleted")
    assert topics_of(broker) == {"events"}
    broker.kill()
    broker.tick(1)
    assert topics_of(broker) == {"events"}
    assert delete(broker, "orders").error_code == ErrorCode.NONE, "there is nothing to forget"


def test_a_group_begins_a_topic_anew_that_it_has_forgotten(broker: LocalBroker, member: ShareMember) -> None:
    member.leave()
    delete(broker, "orders")
    ShareMember(broker, "b", "orders").join()
    topic_id = broker.broker.metadata.topics["orders"].topic_id
    assert Worker(broker, topic_id).fetch().acquired == [(0, 2, 1)]


def test_a_group_with_members_forgets_nothing(broker: LocalBroker, member: ShareMember) -> None:
    assert delete(broker, "orders").error_code == ErrorCode.NON_EMPTY_GROUP
    assert topics_of(broker) == {"orders", "events"}
    assert delete(broker, "orders", group="unknown").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_has_no_states_and_what_it_had_not_finished_is_recorded(
    broker: LocalBroker, member: ShareMember
) -> None:
    member.leave()
    (result,) = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    assert result.error_code == ErrorCode.NONE
    assert topics_of(broker) == set()
    (loss,) = noted(broker)
    assert (loss.group, loss.records, loss.reason) == (GROUP, 2, "group_deleted")
    broker.kill()
    broker.tick(1)
    assert topics_of(broker) == set()
