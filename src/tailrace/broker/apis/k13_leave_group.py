"""LeaveGroup (key 13): members leave, and the group rebalances at once.

Behaviour: a static member does not leave when it stops, so that it can return; an operator removes it by its instance
id.

Versions 0-5.
    3   several members, and static ones      5   a reason, which is ignored
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.group import Identity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

MANY_FROM = 3


def leave_group(
    request: LeaveGroupRequest, call: Call, broker: "Broker"
) -> LeaveGroupResponse | DelayedResponse[LeaveGroupResponse]:
    try:
        broker.groups.begin(call)
    except Refused as error:
        return LeaveGroupResponse(error_code=error.code)
    if call.version < MANY_FROM:
        made = LeaveGroupResponse(error_code=_leave(request.group_id, Identity(request.member_id), broker))
    else:
        made = LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    error_code=_leave(request.group_id, Identity(one.member_id, one.group_instance_id), broker),
                )
                for one in request.members
            ]
        )
    return broker.groups.when_safe(made, request.group_id)


def _leave(group_id: str, identity: Identity, broker: "Broker") -> ErrorCode:
    try:
        broker.groups.find(group_id).leave(identity)
    except Refused as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.LEAVE_GROUP, leave_group, elements_max=2_000)
