"""Offsets of a consumer group, read and committed from outside, by somebody who is not a member; and who is in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tailrace.client.cluster import Cluster
from tailrace.client.errors import ClientError, ConnectionLost, GroupIsActive, TopicNotFound, describe, refusal
from tailrace.client.metadata import NO_EPOCH, TopicPartition
from tailrace.client.options import Address, Isolation
from tailrace.client.retrying import Retry
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

T = TypeVar("T")

DEAD = "Dead"
EMPTY = "Empty"
_ONE_KEY_MAX = 3  # later versions of FindCoordinator, and of OffsetFetch from 8 on, are about many groups
_ONE_GROUP_MAX = 7
_STABLE_SINCE = 7
_BY_NAME_MAX = 9
_TYPES_SINCE = 5
_HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
)


class Committed(NamedTuple):
    """The next offset that a group is going to read, with a text of its own."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    members: tuple[str, ...] = ()  # ids; not told of groups of the newer kinds

    @property
    def exists(self) -> bool:
        return self.state != DEAD

    @property
    def is_active(self) -> bool:
        """Whether somebody is in it, so that only members may commit."""
        return bool(self.members) or self.state not in (EMPTY, DEAD)


def committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Committed]:
    """What the group has committed, of these partitions or of all; those without an offset are left out.

    Where only committed records are read, it waits for transactions that commit offsets.
    """
    stable = cluster.options.isolation is Isolation.READ_COMMITTED
    asked = None if partitions is None else _topics_asked(partitions)
    if asked == []:
        return {}
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)
    bounds = (_STABLE_SINCE if stable else 2, _ONE_GROUP_MAX)

    def check(response: OffsetFetchResponse) -> ClientError | None:
        codes = [response.error_code, *(one.error_code for topic in response.topics for one in topic.partitions)]
        return next((refusal(f"offsets of group {group}", code) for code in codes if code), None)

    answer = _ask(cluster, group, request, OffsetFetchResponse, bounds, check, f"reading offsets of group {group}")
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            one.committed_offset, one.metadata or "", one.committed_leader_epoch
        )
        for topic in answer.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


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

    _ask(cluster, group, request, OffsetCommitResponse, (2, _BY_NAME_MAX), check, f"committing to group {group}")


def describe_group(cluster: Cluster, group: str) -> Group:
    """A group that does not exist is a dead one."""

    def check(response: DescribeGroupsResponse) -> ClientError | None:
        codes = (one.error_code for one in response.groups if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND)
        return next((refusal(f"group {group}", code) for code in codes if code), None)

    doing = f"looking at group {group}"
    request = DescribeGroupsRequest(groups=[group])
    answer = _ask(cluster, group, request, DescribeGroupsResponse, (0, 0x7FFF), check, doing)
    for one in answer.groups:
        if one.group_id == group and not one.error_code and one.group_state != DEAD:
            return Group(group, one.group_state, tuple(member.member_id for member in one.members))
    return _group_of_newer_kind(cluster, group, doing)


def _group_of_newer_kind(cluster: Cluster, group: str, doing: str) -> Group:
    """DescribeGroups speaks of classic groups only; the list of groups has all, with their states."""

    def check(response: ListGroupsResponse) -> ClientError | None:
        return refusal(doing, response.error_code) if response.error_code else None

    retry = cluster.retry(doing)
    with cluster.pool.lease(_coordinator(cluster, group, retry), retry.request_deadline()) as connection:
        if connection.highest(ListGroupsRequest) < _TYPES_SINCE:
            return Group(group, DEAD)
    request = ListGroupsRequest(types_filter=["consumer", "share", "streams"])
    answer = _ask(cluster, group, request, ListGroupsResponse, (_TYPES_SINCE, 0x7FFF), check, doing)
    return Group(group, next((one.group_state for one in answer.groups if one.group_id == group), DEAD))


def _topics_asked(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopic]:
    topics: dict[str, OffsetFetchRequestTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, OffsetFetchRequestTopic(name=partition.topic))
        topic.partition_indexes.append(partition.partition)
    return list(topics.values())


def _ask(
    cluster: Cluster,
    group: str,
    request: Any,
    response: type[T],
    versions: tuple[int, int],
    check: Callable[[T], ClientError | None],
    doing: str,
) -> T:
    """The answer of the group's coordinator, found again and asked again while its errors are passing ones."""
    retry = cluster.retry(doing)
    while True:
        address = _coordinator(cluster, group, retry)
        trouble: ClientError | None
        try:
            deadline = retry.request_deadline()
            with cluster.pool.lease(address, deadline) as connection:
                answer = connection.ask(request, response, deadline, at_least=versions[0], at_most=versions[1])
            trouble = check(answer)
        except ConnectionLost as error:
            trouble = error
        else:
            if trouble is None:
                return answer
        cluster.forget_coordinator(group)
        retry.pause(trouble)


def _coordinator(cluster: Cluster, group: str, retry: Retry) -> Address:
    while True:
        if (known := cluster.coordinator(group)) is not None:
            return known
        request = FindCoordinatorRequest(key=group)
        answer = cluster.ask_any(request, FindCoordinatorResponse, retry, at_most=_ONE_KEY_MAX)
        if not answer.error_code:
            cluster.remember_coordinator(group, (answer.host, answer.port))
        else:
            retry.pause(refusal(f"the coordinator of group {group}", answer.error_code, answer.error_message))
