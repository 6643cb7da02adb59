"""ConsumerGroupHeartbeat (key 68): refused, since groups have the classic protocol only.

Behaviour: answered with UNSUPPORTED_VERSION, as Kafka does where the protocol is switched off. It is listed so that a
client with `group.protocol=consumer` fails with that error: librdkafka would wait for ever for a broker that lists it.
Each such client is logged once.

Versions 0-1.
    1   subscriptions by pattern
Not done: the protocol of KIP-848.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.unsupported import CONSUMER_PROTOCOL
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call, broker: "Broker"
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=broker.unsupported.refuse(*CONSUMER_PROTOCOL, call),
    )


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, frame_bytes_max=1 << 20)
