"""Share groups (KIP-932) as their coordinator describes them."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client import groups
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.coordinators import Kind, ask
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, NotOffered, refusal
from tailrace.client.options import Address
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE = "share"  # the type of a group that ListGroups names
_GROUPS_AT_ONCE = 100


class ShareGroupMember(NamedTuple):
    member_id: str
    client_id: str
    host: str
    rack: str | None
    epoch: int
    subscription: list[str]
    assignment: list[TopicPartition]


class ShareGroup(NamedTuple):
    name: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ShareGroupMember]


def describe(cluster: Cluster, group: str) -> ShareGroup | None:
    """Returns a share group; None if there is no share group of that name, or the broker has none."""

    def check(response: ShareGroupDescribeResponse) -> ClientError | None:
        (found,) = response.groups
        if found.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return None
        return refusal(f"group {group}", found.error_code, found.error_message)

    request = ShareGroupDescribeRequest(group_ids=[group])
    retry = cluster.retry(f"describing group {group}")
    try:
        answer = ask(cluster, Kind.GROUP, group, request, ShareGroupDescribeResponse, (1, 1), check, retry)
    except NotOffered:
        return None
    (found,) = answer.groups
    return None if found.error_code else _group(found)


def described(cluster: Cluster) -> list[ShareGroup]:
    """Returns all share groups that we may see, by name."""
    found = []
    for address, listed in groups.listed(cluster).items():
        names = [one.group_id for one in listed if one.group_type.lower() == SHARE]
        found += _described_at(cluster, address, names)
    return sorted(found)


def _described_at(cluster: Cluster, coordinator: Address, names: Sequence[str]) -> list[ShareGroup]:
    """Leaves out groups that were deleted, or have moved to another coordinator, meanwhile."""
    found: list[ShareGroup] = []
    for first in range(0, len(names), _GROUPS_AT_ONCE):
        request = ShareGroupDescribeRequest(group_ids=list(names[first : first + _GROUPS_AT_ONCE]))
        retry = cluster.retry("describing share groups")
        answer = cluster.ask_at(coordinator, request, ShareGroupDescribeResponse, retry)
        found += [_group(one) for one in answer.groups if not one.error_code]
    return found


def _group(found: DescribedGroup) -> ShareGroup:
    members = [
        ShareGroupMember(
            member.member_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            member.rack_id,
            member.member_epoch,
            sorted(member.subscribed_topic_names),
            sorted(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in found.members
    ]
    return ShareGroup(
        found.group_id, found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name, members
    )
