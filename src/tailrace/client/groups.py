"""Committed offsets of consumer groups, read and changed from outside the group; and the epochs of such groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind, ask
from tailrace.client.cluster.metadata import NO_EPOCH, TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, GroupIsActive, TopicNotFound, describe, refusal
from tailrace.client.options import Address, Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import (
    CLASSIC_MEMBER,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

STABLE_SINCE = 7  # the version of OffsetFetch that can wait for transactions
_ONE_GROUP_MAX = 7  # later versions of OffsetFetch take many groups
_BY_NAME_MAX = 9
_GROUPS_AT_ONCE = 500
_DEAD = "Dead"  # what brokers say of a group that does not exist
_HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
)


class Committed(NamedTuple):
    """A committed offset, the next one that the group reads, and its metadata text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class ConsumerGroupMember(NamedTuple):
    """What a member of a consumer group has, and what it shall have."""

    is_classic: bool
    epoch: int
    assignment: list[TopicPartition]
    target: list[TopicPartition]


class ConsumerGroup(NamedTuple):
    """A consumer group (KIP-848), with its members by their ids."""

    state: str
    epoch: int
    assignment_epoch: int
    members: dict[str, ConsumerGroupMember]


class ClassicMember(NamedTuple):
    member_id: str
    client_id: str
    client_host: str


class ClassicGroup(NamedTuple):
    state: str
    protocol_type: str
    members: list[ClassicMember]


def committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Committed]:
    """Returns the committed offsets of these partitions, or of all; partitions without an offset are left out.

    With read_committed, it waits for transactions that commit offsets.
    """
    stable = cluster.options.isolation is Isolation.READ_COMMITTED
    asked = None if partitions is None else _topics_asked(partitions)
    if asked == []:
        return {}
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)
    bounds = (STABLE_SINCE if stable else 2, _ONE_GROUP_MAX)

    def check(response: OffsetFetchResponse) -> ClientError | None:
        codes = [response.error_code, *(one.error_code for topic in response.topics for one in topic.partitions)]
        return next((refusal(f"offsets of group {group}", code) for code in codes if code), None)

    retry = cluster.retry(f"reading offsets of group {group}")
    answer = ask(cluster, Kind.GROUP, group, request, OffsetFetchResponse, bounds, check, retry)
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            one.committed_offset, one.metadata or "", one.committed_leader_epoch
        )
        for topic in answer.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def describe_consumer_group(cluster: Cluster, group: str) -> ConsumerGroup | None:
    """Returns epochs, assignments and targets of a consumer group (KIP-848); None if there is no such group."""
    request = ConsumerGroupDescribeRequest(group_ids=[group])

    def check(response: ConsumerGroupDescribeResponse) -> ClientError | None:
        (found,) = response.groups
        if found.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return None
        return refusal(f"group {group}", found.error_code, found.error_message)

    retry = cluster.retry(f"describing group {group}")
    answer = ask(cluster, Kind.GROUP, group, request, ConsumerGroupDescribeResponse, (0, 1), check, retry)
    (found,) = answer.groups
    if found.error_code:
        return None
    members = {
        one.member_id: ConsumerGroupMember(
            one.member_type == CLASSIC_MEMBER,
            one.member_epoch,
            _assigned(one.assignment),
            _assigned(one.target_assignment),
        )
        for one in found.members
    }
    return ConsumerGroup(found.group_state, found.group_epoch, found.assignment_epoch, members)


def describe_classic_group(cluster: Cluster, group: str) -> ClassicGroup | None:
    """Returns state and members of a classic group, or of one that has nothing but offsets; None if there is no such
    group.
    """
    request = DescribeGroupsRequest(groups=[group])

    def check(response: DescribeGroupsResponse) -> ClientError | None:
        (found,) = response.groups
        if found.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return None
        return refusal(f"group {group}", found.error_code, found.error_message)

    retry = cluster.retry(f"describing group {group}")
    answer = ask(cluster, Kind.GROUP, group, request, DescribeGroupsResponse, (0, 0x7FFF), check, retry)
    (found,) = answer.groups
    if found.error_code or found.group_state == _DEAD:
        return None
    members = [ClassicMember(one.member_id, one.client_id, one.client_host) for one in found.members]
    return ClassicGroup(found.group_state, found.protocol_type, members)


def _assigned(assignment: Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int | Committed]) -> None:
    """Raises GroupIsActive while the group has members of its own."""
    if not offsets:
        return
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, given in sorted(offsets.items()):
        one = Committed(given) if isinstance(given, int) else given
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))

    def check(response: OffsetCommitResponse) -> ClientError | None:
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code in _HAS_MEMBERS:
                    return GroupIsActive(group, describe(one.error_code))
                if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return TopicNotFound(topic.name, one.partition_index)
                if one.error_code:
                    return refusal(f"committing {topic.name}-{one.partition_index} of group {group}", one.error_code)
        return None

    retry = cluster.retry(f"committing to group {group}")
    ask(cluster, Kind.GROUP, group, request, OffsetCommitResponse, (2, _BY_NAME_MAX), check, retry)


def names(cluster: Cluster) -> set[str]:
    """The names of all groups that we may see. Each broker lists those that it coordinates."""
    return {one.group_id for groups in listed(cluster).values() for one in groups}


def listed(cluster: Cluster, at_least: int = 0) -> dict[Address, list[ListedGroup]]:
    """All groups that we may see, by the broker that coordinates them. From version 4 on they have a state."""
    retry = cluster.retry("listing groups")
    cluster.refresh([], retry)
    return {address: _groups_at(cluster, address, retry, at_least) for address in cluster.brokers}


def _groups_at(cluster: Cluster, address: Address, retry: Retry, at_least: int) -> list[ListedGroup]:
    while True:
        answer = cluster.ask_at(address, ListGroupsRequest(), ListGroupsResponse, retry, at_least=at_least)
        if not answer.error_code:
            return answer.groups
        retry.pause(refusal("listing groups", answer.error_code))


def committed_by(cluster: Cluster, coordinator: Address, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Returns the committed offsets of many groups of one coordinator. Leaves out groups that it does not coordinate
    any more, and those that we may not see.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(groups), _GROUPS_AT_ONCE):
        asked = groups[first : first + _GROUPS_AT_ONCE]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in asked])
        retry = cluster.retry("reading offsets of groups")
        bounds = {"at_least": _ONE_GROUP_MAX + 1, "at_most": _BY_NAME_MAX}
        answer = cluster.ask_at(coordinator, request, OffsetFetchResponse, retry, **bounds)
        for group in answer.groups:
            if not group.error_code:
                found[group.group_id] = {
                    TopicPartition(topic.name, one.partition_index): one.committed_offset
                    for topic in group.topics
                    for one in topic.partitions
                    if one.committed_offset >= 0
                }
    return found


def delete(cluster: Cluster, group: str) -> None:
    """Deletes a group. Does nothing if it does not exist."""

    def check(response: DeleteGroupsResponse) -> ClientError | None:
        codes = (one.error_code for one in response.results if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND)
        return next((refusal(f"deleting group {group}", code) for code in codes if code), None)

    request = DeleteGroupsRequest(groups_names=[group])
    retry = cluster.retry(f"deleting group {group}")
    ask(cluster, Kind.GROUP, group, request, DeleteGroupsResponse, (0, 0x7FFF), check, retry)


def _topics_asked(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopic]:
    topics: dict[str, OffsetFetchRequestTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, OffsetFetchRequestTopic(name=partition.topic))
        topic.partition_indexes.append(partition.partition)
    return list(topics.values())
