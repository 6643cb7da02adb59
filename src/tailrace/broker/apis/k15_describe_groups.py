"""DescribeGroups (key 15): who is in a group, and who works on what.

Behaviour: what members said and were given is shown once the group is stable or about to be; during a rebalance there
is nothing to show. A group that nobody knows is Dead; from version 6 on it is an error.

Versions 0-6.
    3   what one may do with it      4   instance ids      6   GROUP_ID_NOT_FOUND
Not done: authorized operations are all there are, as there is no authorization yet.
"""

from typing import TYPE_CHECKING

from tailrace.broker.errors import Refused
from tailrace.broker.groups.classic import ClassicGroup, State
from tailrace.broker.requests import Api, Call
from tailrace.broker.waiting import Later
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
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8))  # read, delete, describe: all that Kafka has


def describe_groups(
    request: DescribeGroupsRequest, call: Call, broker: "Broker"
) -> DescribeGroupsResponse | Later[DescribeGroupsResponse]:
    described = [_describe(group_id, request, call, broker) for group_id in request.groups]
    return broker.groups.when_safe(DescribeGroupsResponse(groups=described), *request.groups)


def _describe(group_id: str, request: DescribeGroupsRequest, call: Call, broker: "Broker") -> DescribedGroup:
    described = DescribedGroup(group_id=group_id)
    try:
        broker.groups.begin(call)
    except Refused as error:
        described.error_code = error.code
        return described
    group = broker.groups.groups.get(group_id)
    if group is None:
        described.group_state = State.DEAD
        if call.version >= NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"there is no group {group_id!r}"
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
            member_assignment=member.assignment if is_settled else b"",
        )
        for member in group.members.values()
    ]


API = Api(ApiKey.DESCRIBE_GROUPS, describe_groups, elements_max=2_000)
