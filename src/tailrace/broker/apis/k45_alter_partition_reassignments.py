"""AlterPartitionReassignments (key 45): moves replicas of partitions to other brokers, or cancels that.

Behaviour: there is one broker, so a partition can only stay on it: an assignment to this broker is complete at once,
and any other is refused. There is never a reassignment to cancel.

Versions 0-1.
    1   whether the number of replicas may change: it cannot
Not done: other brokers; `timeout_ms`.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, call: Call, broker: "Broker"
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for named in request.topics:
        results = ReassignableTopicResponse(name=named.name)
        response.responses.append(results)
        for wanted in named.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index)
            results.partitions.append(result)
            try:
                _check(broker.topic(named.name), wanted, broker.node_id)
            except Refused as error:
                result.error_code, result.error_message = error.code, error.message
    return response


def _check(topic: Topic | None, wanted: ReassignablePartition, node_id: int) -> None:
    """Raises Refused for any assignment but the current one."""
    if topic is None or not 0 <= wanted.partition_index < topic.partition_count:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text)
    if wanted.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.text)
    if wanted.replicas != [node_id]:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"there is one broker, {node_id}: a partition cannot be on {wanted.replicas[:10]}",
        )


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments, frame_bytes_max=1 << 20)
