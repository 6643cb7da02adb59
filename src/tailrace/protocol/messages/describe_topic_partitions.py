"""DescribeTopicPartitions (key 75): topics and partitions, page by page."""

from tailrace.protocol.fields import array, boolean, int16, int32, nested, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.metadata import NO_OPERATIONS


@structure
class TopicRequest:
    name: str = string()


@structure
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nested(Cursor, null="0+")


@structure
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, null="0+", default=None)
    last_known_elr: list[int] | None = array(int32, null="0+", default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


@structure
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(null="0+")
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=NO_OPERATIONS)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nested(Cursor, null="0+")
