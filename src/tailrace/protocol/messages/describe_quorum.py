"""DescribeQuorum (key 55): the leader, voters and observers of the metadata log."""

from tailrace.protocol.fields import ZERO_UUID, array, int16, int32, int64, string, uint16, uuid
from tailrace.protocol.message import message, structure


@structure
class PartitionData:
    partition_index: int = int32()


@structure
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData] = array(TopicData)


@structure
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(versions="2+", default=ZERO_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(versions="1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64(versions="1+", default=-1, ignorable=True)


@structure
class QuorumPartition:
    """What Kafka's specification calls PartitionData, too."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(versions="2+", null="2+", default=None, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@structure
class QuorumTopic:
    """What Kafka's specification calls TopicData, too."""

    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@structure
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@structure
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(versions="2+", null="2+", default=None, ignorable=True)
    topics: list[QuorumTopic] = array(QuorumTopic)
    nodes: list[Node] = array(Node, versions="2+", ignorable=True)
