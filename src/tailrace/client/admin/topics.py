"""Topics that we need ourselves: created with the cluster's replication factor."""

from collections.abc import Mapping

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import refusal
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_CREATE_S = 30
_DEFAULT_REPLICATION_SINCE = 4


def create_topic(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Creates a topic, or finds that it exists. Raises ClientError."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_S * 1000)
    doing = f"creating topic {name}"
    answer = cluster.ask_any(request, CreateTopicsResponse, cluster.retry(doing), at_least=_DEFAULT_REPLICATION_SINCE)
    code = answer.topics[0].error_code
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise refusal(doing, code, answer.topics[0].error_message)
    cluster.topic(name, fresh=True)
