"""FindCoordinator (key 10): the coordinator of a group, or of a producer's transactions: this broker.

Behaviour: there is one broker, so it coordinates every name. librdkafka compresses with lz4 only for a broker that
supports this API, even without groups.

Versions 0-6.
    1   transactions, too      4   many names at once      6   share groups
Not done: share groups.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

MANY_FROM = 4
GROUP, TRANSACTION = 0, 1


def find_coordinator(request: FindCoordinatorRequest, call: Call, broker: "Broker") -> FindCoordinatorResponse:
    is_known = request.key_type in (GROUP, TRANSACTION)
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    message = None if is_known else f"unknown coordinator type {request.key_type}"
    node_id = broker.node_id if is_known else -1
    host, port = call.endpoint if is_known else ("", -1)
    if call.version < MANY_FROM:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


API = Api(ApiKey.FIND_COORDINATOR, find_coordinator)
