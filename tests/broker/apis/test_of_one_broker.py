"""What tools ask of a cluster, and a cluster of one answers always alike: elections, moves, ACLs, users.

Keys 29, 30, 31, 43, 45, 46, 50.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import LocalBroker
from logs import DATA, memory_files

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(DATA, files=memory_files()) as broker:
        broker.create_topic("orders", 2)
        yield broker


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed(broker: LocalBroker, version: int) -> None:
    named = [TopicPartitions(topic="orders", partitions=[1, 2]), TopicPartitions(topic="nobody", partitions=[0])]
    answer = broker.ask(ElectLeadersRequest(topic_partitions=named), version)
    found = {
        (result.topic, one.partition_id): one.error_code
        for result in answer.replica_election_results
        for one in result.partition_result
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("orders", 1): ErrorCode.ELECTION_NOT_NEEDED, ("orders", 2): unknown, ("nobody", 0): unknown}
    answer = broker.ask(ElectLeadersRequest(topic_partitions=None), version)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


@pytest.mark.parametrize(("kind", "code"), [(0, 0), (1, 0), (2, ErrorCode.INVALID_REQUEST)])
def test_elections_are_of_two_types(broker: LocalBroker, kind: int, code: int) -> None:
    assert broker.ask(ElectLeadersRequest(election_type=kind, topic_partitions=None), 2).error_code == code


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_stays_where_it_is(broker: LocalBroker, version: int) -> None:
    def move(replicas: list[int] | None, topic: str = "orders", index: int = 0) -> int:
        wanted = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        answer = broker.ask(AlterPartitionReassignmentsRequest(topics=[wanted]), version)
        assert answer.error_code == 0
        ((result,),) = [one.partitions for one in answer.responses]
        assert bool(result.error_message) == bool(result.error_code)
        return int(result.error_code)

    assert move([1]) == 0
    for replicas in ([2], [1, 2], [1, 1], []):
        assert move(replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move([1], index=2) == move([1], topic="nobody") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_partition_is_being_moved(broker: LocalBroker) -> None:
    for topics in (None, [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])]):
        answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorization(broker: LocalBroker, version: int) -> None:
    described = broker.ask(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = broker.ask(CreateAclsRequest(creations=[AclCreation(principal="User:a")] * 2), version)
    deleted = broker.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()] * 3), version)
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED] * 3
    assert described.error_message == created.results[0].error_message == deleted.filter_results[0].error_message != ""


def test_no_user_has_a_password(broker: LocalBroker) -> None:
    for users in (None, list[Any]()):
        answer = broker.ask(DescribeUserScramCredentialsRequest(users=users), 0)
        assert (answer.error_code, answer.results) == (0, [])
    users = [UserName(name=name) for name in ("a", "b", "a")]
    results = broker.ask(DescribeUserScramCredentialsRequest(users=users), 0).results
    found = {one.user: one.error_code for one in results}
    assert found == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": ErrorCode.RESOURCE_NOT_FOUND}
