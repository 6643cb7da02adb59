"""ListConfigResources (key 74): the resources that have a configuration."""

from tailrace.protocol.fields import array, int8, int16, int32, string
from tailrace.protocol.message import message, structure

CLIENT_METRICS = 16  # the only type that version 0 lists


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = array(int8, versions="1+")


@structure
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8(versions="1+", default=CLIENT_METRICS, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
