"""OffsetFetch (key 9): the committed offsets of a group.

Up to version 7 a request is about one group, from 8 on about any number of them. So there are two of each structure,
which are nearly the same and have Kafka's names, the later ones in the plural.
"""

from tailrace.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from tailrace.protocol.message import message, structure


@structure
class OffsetFetchRequestTopic:
    name: str = string(versions="0-7")
    partition_indexes: list[int] = array(int32, versions="0-7")


@structure
class OffsetFetchRequestTopics:
    name: str = string(versions="8-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partition_indexes: list[int] = array(int32, versions="8+")


@structure
class OffsetFetchRequestGroup:
    group_id: str = string(versions="8+")
    member_id: str | None = string(versions="9+", null="9+", default=None, ignorable=True)
    member_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, versions="8+", null="8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = string(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, versions="0-7", null="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, versions="8+")
    require_stable: bool = boolean(versions="7+")


@structure
class OffsetFetchResponsePartition:
    partition_index: int = int32(versions="0-7")
    committed_offset: int = int64(versions="0-7")
    committed_leader_epoch: int = int32(versions="5-7", default=-1, ignorable=True)
    metadata: str | None = string(versions="0-7", null="0-7")
    error_code: int = int16(versions="0-7")


@structure
class OffsetFetchResponseTopic:
    name: str = string(versions="0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, versions="0-7")


@structure
class OffsetFetchResponsePartitions:
    partition_index: int = int32(versions="8+")
    committed_offset: int = int64(versions="8+")
    committed_leader_epoch: int = int32(versions="8+", default=-1, ignorable=True)
    metadata: str | None = string(versions="8+", null="8+")
    error_code: int = int16(versions="8+")


@structure
class OffsetFetchResponseTopics:
    name: str = string(versions="8-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, versions="8+")


@structure
class OffsetFetchResponseGroup:
    group_id: str = string(versions="8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, versions="8+")
    error_code: int = int16(versions="8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, versions="0-7")
    error_code: int = int16(versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, versions="8+")
