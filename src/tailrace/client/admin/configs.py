"""Configs of topics, brokers and groups: DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import refusal
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_ALL_BROKERS = ""  # as the name of a broker
_SET, _DELETE = 0, 1


class Setting(NamedTuple):
    """A value that a config has somewhere. `source` is Kafka's number for where."""

    name: str
    value: str | None
    source: int


class Config(NamedTuple):
    """`settings` has every value that the config has somewhere, the one that counts first. The value of a secret is
    None.
    """

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_secret: bool
    settings: tuple[Setting, ...]


def topic_configs(cluster: Cluster, topics: Iterable[str], name: str) -> dict[str, str | None]:
    """Returns the config `name` of each topic, without topics that do not exist or that we may not describe."""
    found = configs_of_topics(cluster, topics, [name])
    return {topic: value for topic, configs in found.items() for value in configs.values()}


def configs_of_topics(
    cluster: Cluster, topics: Iterable[str], names: Iterable[str]
) -> dict[str, dict[str, str | None]]:
    """Returns these configs of each topic, without those that the broker does not know."""
    keys = list(names)
    asked = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=keys)
        for topic in sorted(set(topics))
    ]
    if not asked:
        return {}
    request = DescribeConfigsRequest(resources=asked)
    answer = cluster.ask_any(request, DescribeConfigsResponse, cluster.retry(f"asking for {', '.join(keys)}"))
    return {
        result.resource_name: {config.name: config.value for config in result.configs}
        for result in answer.results
        if not result.error_code
    }


def values_of_a_broker(cluster: Cluster, names: Iterable[str]) -> dict[str, str | None]:
    """Returns these configs of one broker of the cluster, without those that it does not know."""
    retry = cluster.retry("asking for configs of a broker")
    if not cluster.nodes:
        cluster.refresh([], retry)
    node = min(cluster.nodes)
    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(node), configuration_keys=list(names))
    request = DescribeConfigsRequest(resources=[asked])
    answer = cluster.ask_broker(node, request, DescribeConfigsResponse, retry)
    return {config.name: config.value for result in answer.results for config in result.configs}


def broker_configs(cluster: Cluster, broker: int | None) -> dict[str, Config]:
    """All configs of one broker; with None, those that were set for all brokers."""
    return _describe(cluster, _BROKER, _name_of(broker), broker)


def group_configs(cluster: Cluster, group: str) -> dict[str, Config]:
    """All configs of a group, which need not exist."""
    return _describe(cluster, _GROUP, group, None)


def _describe(cluster: Cluster, kind: int, name: str, broker: int | None) -> dict[str, Config]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    retry = cluster.retry("asking for configs")
    while True:
        (result,) = _ask(cluster, broker, request, DescribeConfigsResponse, retry).results
        if not result.error_code:
            return {config.name: _config(config) for config in result.configs}
        retry.pause(refusal("configs cannot be read", result.error_code, result.error_message))


def alter_broker_configs(
    cluster: Cluster, broker: int | None, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Sets configs of one broker, or with None of all brokers; a value of None takes the config back. All of the
    changes are made, or none.
    """
    _alter(cluster, _BROKER, _name_of(broker), broker, changes, validate_only=validate_only)


def alter_group_configs(
    cluster: Cluster, group: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """The same for a group, which need not exist."""
    _alter(cluster, _GROUP, group, None, changes, validate_only=validate_only)


def alter_topic_configs(cluster: Cluster, topic: str, changes: Mapping[str, str | None]) -> None:
    """The same for a topic."""
    _alter(cluster, _TOPIC, topic, None, changes, validate_only=False)


def _alter(
    cluster: Cluster,
    kind: int,
    name: str,
    broker: int | None,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool,
) -> None:
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    retry = cluster.retry("changing configs")
    while True:
        (result,) = _ask(cluster, broker, request, IncrementalAlterConfigsResponse, retry).responses
        if not result.error_code:
            return
        retry.pause(refusal("configs are not changed", result.error_code, result.error_message))


def _name_of(broker: int | None) -> str:
    return _ALL_BROKERS if broker is None else str(broker)


def _ask(cluster: Cluster, broker: int | None, request: Any, response: type[T], retry: Retry) -> T:
    """A broker speaks for itself only."""
    if broker is None:
        return cluster.ask_any(request, response, retry)
    return cluster.ask_broker(broker, request, response, retry)


def _config(found: DescribeConfigsResourceResult) -> Config:
    settings = tuple(Setting(one.name, one.value, one.source) for one in found.synonyms)
    return Config(found.name, found.value, found.config_source, found.read_only, found.is_sensitive, settings)
