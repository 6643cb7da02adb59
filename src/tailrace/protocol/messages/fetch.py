"""Fetch (key 1): record batches from an offset on."""

from tailrace.protocol.fields import array, int8, int16, int32, int64, nested, records, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.protocol.primitives import Buffer, Slice


@structure
class ReplicaState:
    replica_id: int = int32(versions="15+", default=-1)
    replica_epoch: int = int64(versions="15+", default=-1)


@structure
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(versions="12+", default=-1)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(versions="17+", tag=0, ignorable=True)
    high_watermark: int = int64(versions="18+", tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)


@structure
class FetchTopic:
    topic: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    topic: str = string(versions="7-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[int] = array(int32, versions="7+")


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = string(versions="12+", null="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32(versions="0-14", default=-1)
    replica_state: ReplicaState | None = nested(ReplicaState, versions="15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(versions="3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8(versions="4+", ignorable=True)
    session_id: int = int32(versions="7+", ignorable=True)
    session_epoch: int = int32(versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, versions="7+")
    rack_id: str = string(versions="11+", ignorable=True)


@structure
class EpochEndOffset:
    epoch: int = int32(versions="12+", default=-1)
    end_offset: int = int64(versions="12+", default=-1)


@structure
class LeaderIdAndEpoch:
    leader_id: int = int32(versions="12+", default=-1)
    leader_epoch: int = int32(versions="12+", default=-1)


@structure
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@structure
class AbortedTransaction:
    producer_id: int = int64(versions="4+")
    first_offset: int = int64(versions="4+")


@structure
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(versions="4+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="12+", tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, versions="4+", null="4+", ignorable=True
    )
    preferred_read_replica: int = int32(versions="11+", default=-1)
    records: Buffer | Slice | None = records()


@structure
class FetchableTopicResponse:
    topic: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    node_id: int = int32(versions="16+")
    host: str = string(versions="16+")
    port: int = int32(versions="16+")
    rack: str | None = string(versions="16+", null="16+", default=None)


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="7+", ignorable=True)
    session_id: int = int32(versions="7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="16+", tag=0)
