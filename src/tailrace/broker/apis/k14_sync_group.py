"""SyncGroup (key 14): the leader sends the assignment, and every member receives its own part.

Behaviour: followers wait for the leader. The assignment is saved before any member receives it; from then on the group
is stable. A member that the leader has left out gets an empty assignment.

Versions 0-5.
    3   static members      5   the protocol is named, and checked
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, MappedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.members import Synced
from tailrace.broker.groups.group import Identity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def sync_group(
    request: SyncGroupRequest, call: Call, broker: "Broker"
) -> SyncGroupResponse | DelayedResponse[SyncGroupResponse]:
    try:
        broker.groups.begin(call)
        answer = broker.groups.find(request.group_id).sync(
            Identity(request.member_id, request.group_instance_id),
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {one.member_id: bytes(one.assignment) for one in request.assignments},
        )
    except Refused as error:
        return _respond(error.code)
    made = MappedResponse(answer, _respond) if isinstance(answer, DelayedResponse) else _respond(answer)
    return broker.groups.when_safe(made, request.group_id)


def _respond(synced: Synced | ErrorCode) -> SyncGroupResponse:
    if not isinstance(synced, Synced):
        return SyncGroupResponse(error_code=synced)
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
    )


API = Api(ApiKey.SYNC_GROUP, sync_group)
