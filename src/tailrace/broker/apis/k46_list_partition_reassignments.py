"""ListPartitionReassignments (key 46): which partitions are being moved.

Behaviour: always none, as there is one broker.

Versions 0.
Not done: other brokers; `timeout_ms`.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call, broker: "Broker"
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments, frame_bytes_max=1 << 20)
