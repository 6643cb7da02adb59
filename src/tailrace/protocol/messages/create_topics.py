"""CreateTopics (key 19): creates topics."""

from tailrace.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from tailrace.protocol.message import message, structure


@structure
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@structure
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(null="0+")


@structure
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean(versions="1+")


@structure
class CreatableTopicConfigs:
    name: str = string(versions="5+")
    value: str | None = string(versions="5+", null="5+")
    read_only: bool = boolean(versions="5+")
    config_source: int = int8(versions="5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean(versions="5+")


@structure
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid(versions="7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="1+", null="0+", ignorable=True)
    topic_config_error_code: int = int16(versions="5+", tag=0, ignorable=True)
    num_partitions: int = int32(versions="5+", default=-1, ignorable=True)
    replication_factor: int = int16(versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, versions="5+", null="5+", ignorable=True)


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
