"""AlterConfigs (key 33): replaces all configuration values of a resource."""

from tailrace.protocol.fields import array, boolean, int8, int32, string
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse


@structure
class AlterableConfig:
    name: str = string()
    value: str | None = string(null="0+")


@structure
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
