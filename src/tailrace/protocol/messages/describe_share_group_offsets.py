"""DescribeShareGroupOffsets (key 90): where each partition of a share group starts, and how far it is behind.

Tagged field 10000 of a partition is ours, and holds what the queue commands show beyond that; in the request, it asks
for the states of records.
"""

from tailrace.protocol.fields import array, int8, int16, int32, int64, nested, string, uuid
from tailrace.protocol.message import message, structure

UNKNOWN = -1


@structure
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(DescribeShareGroupOffsetsRequestTopic, null="0+")


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)
    states_max: int = int32(tag=10_000)  # for how many unfinished records of a partition


@structure
class RecordStates:
    """Records in one state, by Kafka's numbers: 0 available, 1 acquired, 2 acknowledged, 3 archiving, 4 archived; and
    ours: 5 parked. `delivery_count` includes a delivery in progress.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    state: int = int8()
    delivery_count: int = int16()


@structure
class AttemptCount:
    """How many unfinished records have been delivered `attempt` times."""

    attempt: int = int16()
    records: int = int64()


@structure
class QueueFacts:
    """Ours: the state of a share partition. The defaults are those of no facts at all, which are not written."""

    in_flight: int = int64(default=UNKNOWN)  # acquired records
    parked: int = int64(default=UNKNOWN)  # records that wait for their time
    oldest_ms: int = int64(default=UNKNOWN)  # the timestamp of the oldest unfinished record, or -1
    attempts: list[AttemptCount] = array(AttemptCount)
    dead_lettered: int = int64()
    expired: int = int64()
    lost: int = int64()
    states: list[RecordStates] = array(RecordStates)  # if they were asked for


@structure
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(versions="1+", default=UNKNOWN, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    queue: QueueFacts | None = nested(QueueFacts, tag=10_000)


@structure
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@structure
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
