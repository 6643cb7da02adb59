"""ShareGroupHeartbeat (key 76): a member joins, stays in or leaves a share group (KIP-932).

Behaviour: the broker computes assignments, with the assignor `simple`: members share partitions where there are more
members than partitions. The first response has partitions; one that waits for the assignment interval tells the member
to come back at its end. The response is sent when what it says is on disk. A heartbeat that changes nothing writes
nothing. A name belongs to one kind of group: GROUP_ID_NOT_FOUND for that of a classic or consumer group.

Versions 1.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.apis.k68_consumer_group_heartbeat import assignment_of
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.share.heartbeat import ShareHeartbeat, check
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, call: Call, broker: "Broker"
) -> ShareGroupHeartbeatResponse | DelayedResponse[ShareGroupHeartbeatResponse]:
    beat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        request.subscribed_topic_names,
        call.client_id or "",
        call.client_host,
    )
    try:
        check(beat, request.group_id)
        broker.groups.begin(call)
        outcome = broker.groups.share_beat(request.group_id, beat)
    except Refused as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=outcome.epoch,
        heartbeat_interval_ms=outcome.next_in_ms,
        assignment=None if outcome.assignment is None else assignment_of(outcome.assignment),
    )
    return broker.groups.when_share_safe(response, request.group_id)


API = Api(ApiKey.SHARE_GROUP_HEARTBEAT, share_group_heartbeat, frame_bytes_max=1 << 20)
