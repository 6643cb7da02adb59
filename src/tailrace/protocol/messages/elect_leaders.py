"""ElectLeaders (key 43): elects the preferred replicas of partitions, or any live one, as leaders."""

from tailrace.protocol.fields import array, int8, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = int8(versions="1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null="0+")  # None: all
    timeout_ms: int = int32(default=60_000)


@structure
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


@structure
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
