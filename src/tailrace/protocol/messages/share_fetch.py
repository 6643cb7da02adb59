"""ShareFetch (key 78): acquires records for a member of a share group, and acknowledges those acquired before.

Tagged fields from 10000 on are ours: Kafka's brokers skip them.
"""

from tailrace.protocol.fields import array, boolean, int8, int16, int32, int64, nested, records, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.share_acknowledge import (
    NOT_GIVEN,
    AcknowledgementBatch,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from tailrace.protocol.primitives import Buffer, Slice

BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1


@structure
class FetchPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class FetchTopic:
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(versions="2+", ignorable=True)
    is_renew_ack: bool = boolean(versions="2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)
    lock_duration_ms: int = int32(default=NOT_GIVEN, tag=10_000)  # of records that this request acquires


@structure
class AcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@structure
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(null="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Buffer | Slice = records(null=None)
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@structure
class ShareFetchableTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
