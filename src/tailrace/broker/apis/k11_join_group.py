"""JoinGroup (key 11): a consumer joins a group, or takes part in a rebalance.

Behaviour: the response is sent when all members have joined, or at the timeout, and names the leader, which computes
the assignment. A new member first gets its id, and has to join again with it (version 4 on). A static member, which has
an instance id, replaces its former self; if its subscription is unchanged, there is no rebalance. In a consumer group
(KIP-848) the response is sent at once, and names no leader: the broker computes the assignment.

Versions 0-9.
    1   a timeout for rebalances      4   MEMBER_ID_REQUIRED      5   static members      9   an assignment may be kept
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, MappedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.members import Joined, JoinRequest, MemberIdRequired
from tailrace.broker.groups.group import Identity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

ID_REQUIRED_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


def join_group(
    request: JoinGroupRequest, call: Call, broker: "Broker"
) -> JoinGroupResponse | DelayedResponse[JoinGroupResponse]:
    try:
        broker.groups.begin(call)
        _check(request, broker)
        group = broker.groups.find_for_join(request.group_id, is_known=request.member_id != "")
        answer = group.join(_joining(request, call))
    except MemberIdRequired as error:
        return _refuse(error.code, error.member_id, call.version)
    except Refused as error:
        return _refuse(error.code, request.member_id, call.version)

    def respond(joined: Joined | ErrorCode) -> JoinGroupResponse:
        if isinstance(joined, Joined):
            return _respond(joined, call.version)
        return _refuse(joined, request.member_id, call.version)

    if isinstance(answer, DelayedResponse):
        return MappedResponse(answer, respond)
    return broker.groups.when_safe(respond(answer), request.group_id)


def _check(request: JoinGroupRequest, broker: "Broker") -> None:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if request.session_timeout_ms not in broker.groups.session_timeouts_ms:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            "the session timeout must be between group.min.session.timeout.ms and group.max.session.timeout.ms",
        )


def _joining(request: JoinGroupRequest, call: Call) -> JoinRequest:
    has_timeout = request.rebalance_timeout_ms >= 0
    return JoinRequest(
        Identity(request.member_id, request.group_instance_id),
        call.client_id or "",
        call.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        request.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        must_know_id=call.version >= ID_REQUIRED_FROM,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_FROM,
    )


def _respond(joined: Joined, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


def _refuse(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    protocol = None if version >= NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, member_id=member_id)


API = Api(ApiKey.JOIN_GROUP, join_group, frame_bytes_max=1 << 20, elements_max=100)
