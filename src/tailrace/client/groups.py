"""Committed offsets of consumer groups, read and changed from outside the group."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind, ask
from tailrace.client.cluster.metadata import NO_EPOCH, TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, ConnectionLost, GroupIsActive, TopicNotFound, describe, refusal
from tailrace.client.options import Address, Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

STABLE_SINCE = 7  # the version of OffsetFetch that can wait for transactions
_ONE_GROUP_MAX = 7  # later versions of OffsetFetch are about many groups
_BY_NAME_MAX = 9
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
    """Of all groups that we may see: each broker knows those that it keeps."""
    retry = cluster.retry("listing groups")
    cluster.refresh([], retry)
    return {one.group_id for address in cluster.brokers for one in _groups_at(cluster, address, retry)}


def _groups_at(cluster: Cluster, address: Address, retry: Retry) -> list[ListedGroup]:
    while True:
        deadline = retry.request_deadline()
        try:
            with cluster.pool.lease(address, deadline) as connection:
                answer = connection.ask(ListGroupsRequest(), ListGroupsResponse, deadline)
        except ConnectionLost as error:
            retry.pause(error)
            continue
        if not answer.error_code:
            return answer.groups
        retry.pause(refusal("listing groups", answer.error_code))


def delete(cluster: Cluster, group: str) -> None:
    """Nothing where there is none."""

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
