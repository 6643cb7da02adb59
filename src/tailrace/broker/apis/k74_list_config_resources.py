"""ListConfigResources (key 74): the resources that have configs.

Behaviour: every topic, also internal ones, this broker, its loggers, and every group with configs. An empty list of
types is all types.

Versions 0-1.
    0   client metrics only, of which there are none      1   the requested types
Not done: client metrics, which have no configs here yet: none are listed.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.metadata.state import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, TOPIC_RESOURCE
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

TYPES_FROM = 1
CLIENT_METRICS_RESOURCE = 16
KNOWN = {TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}


def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, broker: "Broker"
) -> ListConfigResourcesResponse:
    kinds = {CLIENT_METRICS_RESOURCE} if call.version < TYPES_FROM else set(request.resource_types) or KNOWN
    if not kinds <= KNOWN:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()
    response.config_resources += [
        ConfigResource(resource_name=str(broker.node_id), resource_type=kind)
        for kind in (LOGGER_RESOURCE, BROKER_RESOURCE)
        if kind in kinds
    ]
    if TOPIC_RESOURCE in kinds:
        response.config_resources += [
            ConfigResource(resource_name=name, resource_type=TOPIC_RESOURCE) for name in sorted(broker.metadata.topics)
        ]
    if GROUP_RESOURCE in kinds:
        response.config_resources += [
            ConfigResource(resource_name=name, resource_type=GROUP_RESOURCE)
            for name in sorted(broker.metadata.group_overrides)
        ]
    return response


API = Api(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources)
