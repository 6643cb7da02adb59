"""IncrementalAlterConfigs (key 44): sets and deletes configs of topics, brokers, groups and loggers, and changes lists.

Behaviour: a topic, broker or group gets all of its changes or none, and may be listed only once. Changes apply from the
response on. Broker configs that are needed at the start are refused; with "" for the broker's name, changes are for all
brokers. A group need not exist. Internal topics are refused. Levels of loggers last until the broker stops.
`validate_only` reports what would be refused.

Versions 0-1.
    1   flexible
Not done: client metrics, which have no configs here yet.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.config_changes import alter_broker, alter_group, alter_topic, check_broker, no_such_type
from tailrace.broker.metadata.logger_levels import alter_loggers
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.broker.metadata.state import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, TOPIC_RESOURCE
from tailrace.broker.metadata.topic_changes import check_name
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, call: Call, broker: "Broker"
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=alter(request.resources, request.validate_only, call, broker, has_loggers=True)
    )


def alter(
    resources: Sequence[AlterConfigsResource],
    validate_only: bool,
    call: Call,
    broker: "Broker",
    *,
    has_loggers: bool = False,
) -> list[AlterConfigsResourceResponse]:
    """Makes the changes, and returns the result for each resource."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    changes: list[MetadataRecord] = []
    results: list[AlterConfigsResourceResponse] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        result = AlterConfigsResourceResponse(error_message=None, resource_type=kind, resource_name=name)
        results.append(result)
        try:
            if counts[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{name!r} appears {counts[kind, name]} times in the request")
            if kind == LOGGER_RESOURCE and has_loggers:
                check_broker(name, broker.configs)
                alter_loggers(resource.configs, validate_only=validate_only)
            else:
                changes += _decide(resource, broker, call)
        except Refused as error:
            result.error_code, result.error_message = error.code, error.message
    if changes and not validate_only:
        broker.metadata_log.write_or_refuse(changes, results, call.now_ms)
    return results


def _decide(resource: AlterConfigsResource, broker: "Broker", call: Call) -> list[MetadataRecord]:
    name = resource.resource_name
    if resource.resource_type == BROKER_RESOURCE:
        return alter_broker(name, resource.configs, broker.configs)
    if resource.resource_type == GROUP_RESOURCE:
        return alter_group(name, resource.configs, broker.metadata.group_overrides.get(name, {}), broker.configs)
    if resource.resource_type != TOPIC_RESOURCE:
        raise no_such_type(resource.resource_type)
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "the topic name is empty: defaults for all topics are broker configs")
    check_name(name)
    topic = broker.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return alter_topic(topic, resource.configs, broker.configs, call.now_ms)


API = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    incremental_alter_configs,
    frame_bytes_max=1 << 20,  # 80 ms, if these are lists with many elements
    elements_max=10_000,  # 5,000 topics with a config each take 80 ms
)
