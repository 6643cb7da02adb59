"""Produce (key 0): appends record batches, and returns their offsets."""

from tailrace.protocol.fields import array, int16, int32, int64, nested, records, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.protocol.primitives import Buffer


@structure
class PartitionProduceData:
    index: int = int32()
    records: Buffer | None = records()


@structure
class TopicProduceData:
    name: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = string(versions="3+", null="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@structure
class BatchIndexAndErrorMessage:
    batch_index: int = int32(versions="8+")
    batch_index_error_message: str | None = string(versions="8+", null="8+", default=None)


@structure
class LeaderIdAndEpoch:
    leader_id: int = int32(versions="10+", default=-1)
    leader_epoch: int = int32(versions="10+", default=-1)


@structure
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(versions="2+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, versions="8+", ignorable=True)
    error_message: str | None = string(versions="8+", null="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="10+", tag=0)


@structure
class TopicProduceResponse:
    name: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@structure
class NodeEndpoint:
    node_id: int = int32(versions="10+")
    host: str = string(versions="10+")
    port: int = int32(versions="10+")
    rack: str | None = string(versions="10+", null="10+", default=None)


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="10+", tag=0)
