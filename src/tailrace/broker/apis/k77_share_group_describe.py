"""ShareGroupDescribe (key 77): state, epochs and members of share groups (KIP-932).

Behaviour: each member with its subscription and the partitions that it has. GROUP_ID_NOT_FOUND for a group that does
not exist, or is of another kind.

Versions 1.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.apis.k15_describe_groups import GROUP_OPERATIONS
from tailrace.broker.apis.k69_consumer_group_describe import assignment_of
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.descriptions import describe_each
from tailrace.broker.groups.share.draft import ASSIGNOR
from tailrace.broker.groups.share.state import ShareMember
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages import share_group_describe as described
from tailrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def share_group_describe(
    request: ShareGroupDescribeRequest, call: Call, broker: "Broker"
) -> ShareGroupDescribeResponse | DelayedResponse[ShareGroupDescribeResponse]:
    return describe_each(
        request.group_ids,
        lambda group_id: _describe(group_id, request, call, broker),
        ShareGroupDescribeResponse,
        call.version,
        broker,
    )


def _describe(
    group_id: str, request: ShareGroupDescribeRequest, call: Call, broker: "Broker"
) -> described.DescribedGroup:
    result = described.DescribedGroup(group_id=group_id)
    try:
        broker.groups.begin(call)
        group = broker.groups.share_group(group_id)
    except Refused as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    state = group.replayed
    if request.include_authorized_operations:
        result.authorized_operations = GROUP_OPERATIONS
    result.group_state = group.state
    result.group_epoch = state.epoch
    result.assignment_epoch = state.assignment_epoch
    result.assignor_name = ASSIGNOR
    result.members = [_member(member, broker) for member in group.members.values()]
    return result


def _member(member: ShareMember, broker: "Broker") -> described.Member:
    details = member.details
    return described.Member(
        member_id=member.member_id,
        rack_id=details.rack_id,
        member_epoch=member.current.epoch,
        client_id=details.client_id,
        client_host=details.client_host,
        subscribed_topic_names=list(details.subscribed_names),
        assignment=assignment_of(member.current.assigned, broker),
    )


API = Api(ApiKey.SHARE_GROUP_DESCRIBE, share_group_describe, elements_max=2_000)
