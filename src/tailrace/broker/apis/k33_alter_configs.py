"""AlterConfigs (key 33): replaces all configs of a topic, a broker or a group.

Behaviour: configs that are not listed return to their defaults; otherwise like IncrementalAlterConfigs (44), which
newer clients use, and which does not undo concurrent changes.

Versions 0-2.
    2   flexible
Not done: what 44 does not do, and loggers.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from tailrace.broker.apis.k44_incremental_alter_configs import alter
from tailrace.broker.core.api import Api, Call
from tailrace.broker.metadata.config_changes import Operation
from tailrace.broker.metadata.state import GROUP_RESOURCE, TOPIC_RESOURCE
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tailrace.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from tailrace.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def alter_configs(request: AlterConfigsRequest, call: Call, broker: "Broker") -> AlterConfigsResponse:
    resources = [_as_changes(resource, broker) for resource in request.resources]
    return AlterConfigsResponse(responses=alter(resources, request.validate_only, call, broker))


def _as_changes(resource: WholeResource, broker: "Broker") -> AlterConfigsResource:
    named = {config.name for config in resource.configs}
    changes = [
        AlterableConfig(name=config.name, config_operation=Operation.SET, value=config.value)
        for config in resource.configs
    ]
    changes += [
        AlterableConfig(name=name, config_operation=Operation.DELETE, value=None)
        for name in _own(resource, broker)
        if name not in named
    ]
    return AlterConfigsResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=changes
    )


def _own(resource: WholeResource, broker: "Broker") -> Collection[str]:
    """The names of the configs that the resource has a value of its own for."""
    if resource.resource_type == GROUP_RESOURCE:
        return broker.metadata.group_overrides.get(resource.resource_name, {})
    if resource.resource_type != TOPIC_RESOURCE:
        return broker.configs.at_run_time.get(resource.resource_name, {})
    topic = broker.topic(resource.resource_name)
    return topic.overrides if topic is not None else ()


API = Api(ApiKey.ALTER_CONFIGS, alter_configs, frame_bytes_max=1 << 20, elements_max=10_000)
