"""AlterPartitionReassignments (key 45): moves replicas of partitions to other brokers, or cancels that."""

from tailrace.protocol.fields import array, boolean, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, null="0+", default=None)  # None cancels a reassignment


@structure
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(versions="1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@structure
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


@structure
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(versions="1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
