"""IncrementalAlterConfigs (key 44): sets, deletes, appends to and subtracts from single configuration values."""

from tailrace.protocol.fields import array, boolean, int8, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(null="0+")


@structure
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@structure
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
