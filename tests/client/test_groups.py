import contextlib
import secrets
import time

import pytest
from client.conftest import create_topic, options
from client.fakes import HANG_UP, FakeBroker, once
from confluent_kafka import Consumer

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import GroupIsActive, NotAuthorized, TopicNotFound
from tailrace.client.groups import Committed, commit, committed, delete, describe_classic_group, names
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


def commit_soon(cluster: Cluster, group: str, place: TopicPartition) -> None:
    """Once the group has no members any more."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return commit(cluster, group, {place: 1})
        except GroupIsActive:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def group() -> str:
    return f"group-{secrets.token_hex(4)}"


def test_what_is_committed_is_read_back(cluster: Cluster, topic: str, group: str) -> None:
    create_topic(cluster, topic + "-more", partitions=3)
    first, second = TopicPartition(topic, 0), TopicPartition(topic + "-more", 2)
    commit(cluster, group, {first: 17, second: Committed(4, "a note")})
    assert committed(cluster, group) == {first: Committed(17), second: Committed(4, "a note")}
    assert committed(cluster, group, [second, TopicPartition(topic + "-more", 1)]) == {second: Committed(4, "a note")}
    assert committed(cluster, group, []) == {}
    commit(cluster, group, {})


def test_a_group_that_is_not_there_has_nothing(cluster: Cluster, topic: str, group: str) -> None:
    assert committed(cluster, group, [TopicPartition(topic, 0)]) == {}
    assert committed(cluster, group) == {}


def test_only_stable_offsets_where_only_committed_records_are_read(bootstrap: str, topic: str, group: str) -> None:
    with contextlib.closing(Cluster(options(bootstrap, isolation_level="read_committed"))) as cluster:
        commit(cluster, group, {TopicPartition(topic, 0): 1})
        assert committed(cluster, group) == {TopicPartition(topic, 0): Committed(1)}


def test_a_topic_that_is_not_there_is_named(cluster: Cluster, group: str) -> None:
    with pytest.raises(TopicNotFound, match="no partition 0 of topic never-made"):
        commit(cluster, group, {TopicPartition("never-made", 0): 1})


def test_a_group_with_members_is_left_alone(bootstrap: str, cluster: Cluster, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(GroupIsActive, match="stop its consumers, or use another group"):
            commit(cluster, group, {TopicPartition(topic, 0): 1})
    finally:
        consumer.close()
    commit_soon(cluster, group, TopicPartition(topic, 0))


def found_at(broker: FakeBroker) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=broker.node_id, host="127.0.0.1", port=broker.port)


def test_a_coordinator_that_moves_is_found_again(faked: Cluster, fake: FakeBroker, another_fake: FakeBroker) -> None:
    fake.answers[FindCoordinatorRequest] = another_fake.answers[FindCoordinatorRequest] = once(
        lambda request, version: FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        lambda request, version: found_at(fake),
        lambda request, version: found_at(another_fake),
    )
    fake.answers[OffsetFetchRequest] = lambda request, version: OffsetFetchResponse(
        error_code=ErrorCode.NOT_COORDINATOR
    )
    another_fake.answers[OffsetFetchRequest] = once(
        lambda request, version: HANG_UP,
        lambda request, version: OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        lambda request, version: OffsetFetchResponse(),
    )
    assert committed(faked, "group") == {}


def test_what_is_not_allowed_is_told_at_once(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(error_code=30)
    with pytest.raises(NotAuthorized, match=r"coordinator of group mine: .*GROUP_AUTHORIZATION_FAILED.*ACL"):
        committed(faked, "mine")


def test_groups_are_listed_and_deleted(cluster: Cluster, topic: str, group: str) -> None:
    commit(cluster, group, {TopicPartition(topic, 0): 0})
    assert group in names(cluster)
    for _ in range(2):  # one that is not there is no error
        delete(cluster, group)
        assert group not in names(cluster)


def test_a_classic_group_is_described_and_a_missing_one_is_not(cluster: Cluster, topic: str) -> None:
    group = f"group-{topic}"
    assert describe_classic_group(cluster, group) is None
    commit(cluster, group, {TopicPartition(topic, 0): 0})
    found = describe_classic_group(cluster, group)
    assert found is not None
    assert (found.state, found.members) == ("Empty", [])
