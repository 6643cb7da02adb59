"""Heartbeat (key 12): a member says that it is there, and learns whether it has to join again.

Behaviour: as long as it is heard of within its session timeout, a member stays one. A rebalance is told by
REBALANCE_IN_PROGRESS, a member that was put out by UNKNOWN_MEMBER_ID, one whose place was taken by FENCED_INSTANCE_ID.
While groups are being read, all is well, as in Kafka: some clients end on any other answer.

Versions 0-4.
    3   static members
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.members import Identity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def heartbeat(request: HeartbeatRequest, call: Call, broker: "Broker") -> HeartbeatResponse:
    try:
        broker.groups.begin(call)
        identity = Identity(request.member_id, request.group_instance_id)
        broker.groups.find(request.group_id).heartbeat(identity, request.generation_id)
    except Refused as error:
        is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    return HeartbeatResponse()


API = Api(ApiKey.HEARTBEAT, heartbeat, frame_bytes_max=64 << 10)
