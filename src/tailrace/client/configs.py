"""Configs of topics, from DescribeConfigs."""

from collections.abc import Iterable

from tailrace.client.cluster.cluster import Cluster
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_TOPIC = 2


def topic_configs(cluster: Cluster, topics: Iterable[str], name: str) -> dict[str, str | None]:
    """The config of that name of each topic; without those that are not there, or that we may not look at."""
    asked = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[name])
        for topic in sorted(set(topics))
    ]
    if not asked:
        return {}
    request = DescribeConfigsRequest(resources=asked)
    answer = cluster.ask_any(request, DescribeConfigsResponse, cluster.retry(f"asking for {name}"))
    return {result.resource_name: config.value for result in answer.results for config in result.configs}
