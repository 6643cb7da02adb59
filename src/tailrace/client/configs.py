"""Configurations of topics, as their broker has them."""

from collections.abc import Iterable

from tailrace.client.cluster import Cluster
from tailrace.client.errors import refusal
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_TOPIC = 2


def topic_configs(cluster: Cluster, topics: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """By topic, then by name. Raises Refused where we may not know, or a topic is gone."""
    wanted = list(names)
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=wanted)
        for topic in topics
    ]
    if not resources:
        return {}
    retry = cluster.retry("asking for configurations")
    while True:
        answer = cluster.ask_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, retry)
        failed = next((one for one in answer.results if one.error_code), None)
        if failed is None:
            break
        retry.pause(refusal(f"configuration of {failed.resource_name}", failed.error_code, failed.error_message))
    return {one.resource_name: {config.name: config.value or "" for config in one.configs} for one in answer.results}
