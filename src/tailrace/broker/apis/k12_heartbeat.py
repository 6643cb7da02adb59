"""Heartbeat (key 12): keeps a member in its group, and tells it whether it has to join again.

Behaviour: a member stays in the group as long as it sends a heartbeat within its session timeout. REBALANCE_IN_PROGRESS
announces a rebalance, UNKNOWN_MEMBER_ID that the member was removed, FENCED_INSTANCE_ID that another member has taken
its instance id. While groups are being loaded, there is no error, as in Kafka: some clients give up on any other
response.

Versions 0-4.
    3   static members
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.group import Identity
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
