"""DescribeGroups (key 15): the members of a group, and their assignments.

Behaviour: the metadata of members is shown while the group is stable, their last assignments always. An unknown group
is Dead; from version 6 on it is an error. So is a consumer group (KIP-848): ConsumerGroupDescribe has those.

Versions 0-6.
    3   authorized operations      4   instance ids      6   GROUP_ID_NOT_FOUND
Not done: authorized operations are always all of them, as there is no authorization yet.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused, in_short
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.state import State
from tailrace.broker.groups.descriptions import describe_each
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

NOT_FOUND_FROM = 6
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8))  # read, delete, describe: Kafka has no others


def describe_groups(
    request: DescribeGroupsRequest, call: Call, broker: "Broker"
) -> DescribeGroupsResponse | DelayedResponse[DescribeGroupsResponse]:
    return describe_each(
        request.groups,
        lambda group_id: _describe(group_id, request, call, broker),
        DescribeGroupsResponse,
        call.version,
        broker,
    )


def _describe(group_id: str, request: DescribeGroupsRequest, call: Call, broker: "Broker") -> DescribedGroup:
    described = DescribedGroup(group_id=group_id)
    try:
        broker.groups.begin(call)
    except Refused as error:
        described.error_code = error.code
        return described
    group = broker.groups.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described.group_state = State.DEAD
        if call.version >= NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = in_short(f"there is no classic group {group_id!r}")
        return described
    if request.include_authorized_operations:
        described.authorized_operations = GROUP_OPERATIONS
    described.group_state = group.state
    described.protocol_type = group.protocol_type
    is_settled = group.state is State.STABLE
    described.protocol_data = (group.protocol or "") if is_settled else ""
    described.members = _members(group, is_settled)
    return described


def _members(group: ClassicGroup, is_settled: bool) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_settled else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


API = Api(ApiKey.DESCRIBE_GROUPS, describe_groups, elements_max=2_000)
