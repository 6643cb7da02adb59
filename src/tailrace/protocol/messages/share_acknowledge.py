"""ShareAcknowledge (key 79): what became of records that a member of a share group has acquired.

Tagged fields from 10000 on are ours: Kafka's brokers skip them.
"""

from tailrace.protocol.fields import array, boolean, int8, int16, int32, int64, nested, string, uuid
from tailrace.protocol.message import message, structure

GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

FINAL_EPOCH = -1  # closes a share session

NOT_GIVEN = -1


@structure
class AcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)  # one for all of the range, or one per offset


@structure
class AcknowledgePartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class AcknowledgeTopic:
    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(versions="2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)
    lock_duration_ms: int = int32(default=NOT_GIVEN, tag=10_000)  # of renewed records
    delay_ms: int = int32(default=NOT_GIVEN, tag=10_001)  # until released records are available again


@structure
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)


@structure
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null="0+", default=None)


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(versions="2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
