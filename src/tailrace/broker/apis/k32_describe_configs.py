"""DescribeConfigs (key 32): every config of topics, brokers, groups and loggers, with the source of its value.

Behaviour: a null or empty list of keys is all of them; unknown keys are left out. For a broker, all its current values;
with "" for its name, only those that were set at run time for all brokers. min.insync.replicas is always one of these,
because Kafka (4.1 and later) sets it for all brokers by itself. Secrets are marked as sensitive, and have no value.
Inherited configs are encoded once for all topics. A group need not exist.

Versions 1-4.
    1   sources and synonyms: the value at every source, the current one first
    3   types, and documentation on request
Not done: client metrics, which have no configs here yet.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.broker.configs.group_tables import GROUP_KEYS
from tailrace.broker.configs.groups import group_layers
from tailrace.broker.configs.keys import ConfigKey
from tailrace.broker.configs.registry import ConfigSource, Entry, broker_key, topic_layers
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.metadata.config_changes import check_broker, no_such_type
from tailrace.broker.metadata.logger_levels import levels
from tailrace.broker.metadata.state import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, TOPIC_RESOURCE
from tailrace.broker.metadata.topic_changes import check_name
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

ANSWER_BYTES_MAX = 20 << 20  # of configs; the largest number of topics, with all configs, takes 14 MB

Fragments = dict[str, bytes]
"""Encoded configs, by their names."""


def describe_configs(request: DescribeConfigsRequest, call: Call, broker: "Broker") -> DescribeConfigsResponse:
    description = ConfigsDescription(request, call, broker)
    return DescribeConfigsResponse(results=[description.of(resource) for resource in request.resources])


class ConfigsDescription:
    """The response to one request, and values cached while it is made."""

    def __init__(self, request: DescribeConfigsRequest, call: Call, broker: "Broker") -> None:
        self._broker = broker
        self._version = call.version
        self._with_synonyms = request.include_synonyms
        self._with_documentation = request.include_documentation
        self._bytes_left = ANSWER_BYTES_MAX
        self._defaults: Fragments = {}
        self._own: dict[tuple[str, str], bytes] = {}  # of topics, by name and value: many are equal
        self._made: dict[tuple[int, str], Fragments] = {}

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            fragments = self._fragments(resource.resource_type, resource.resource_name)
            result.configs = self._chosen(fragments, resource.configuration_keys)
        except Refused as error:
            result.error_code, result.error_message = error.code, error.message
        return result

    def _chosen(self, fragments: Fragments, names: list[str] | None) -> Encoded:
        if names:
            fragments = {name: fragments[name] for name in names if name in fragments}
        data = b"".join(fragments.values())
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the response would have more than {ANSWER_BYTES_MAX} bytes: request fewer resources",
            )
        return Encoded(len(fragments), data)

    def _fragments(self, kind: int, name: str) -> Fragments:
        """Returns the encoded configs of a resource. Raises Refused if it does not exist."""
        found = self._made.get((kind, name))
        if found is None:
            if kind == TOPIC_RESOURCE:
                found = self._topic_fragments(self._topic(name))
            elif kind == BROKER_RESOURCE:
                found = self._broker_fragments(name)
            elif kind == GROUP_RESOURCE:
                found = self._group_fragments(name)
            elif kind == LOGGER_RESOURCE:
                found = self._logger_fragments(name)
            else:
                raise no_such_type(kind)
            self._made[kind, name] = found
        return found

    def _topic(self, name: str) -> Topic:
        check_name(name)
        topic = self._broker.topic(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _topic_fragments(self, topic: Topic) -> Fragments:
        if not self._defaults:
            self._defaults = {name: self._topic_fragment(name, {}) for name in TOPIC_KEYS}
        if not topic.overrides:
            return self._defaults
        own = {name: self._own_fragment(name, text) for name, text in topic.overrides.items() if name in TOPIC_KEYS}
        return self._defaults | own

    def _own_fragment(self, name: str, text: str) -> bytes:
        found = self._own.get((name, text))
        if found is None:
            found = self._own[name, text] = self._topic_fragment(name, {name: text})
        return found

    def _topic_fragment(self, name: str, overrides: dict[str, str]) -> bytes:
        return self._encode(TOPIC_KEYS[name], topic_layers(name, overrides, self._broker.configs), is_read_only=False)

    def _broker_fragments(self, name: str) -> Fragments:
        configs = self._broker.configs
        if name == "":
            source = ConfigSource.ALL_BROKERS_AT_RUN_TIME
            own = [Entry(broker_key(key), text, source) for key, text in sorted(configs.for_all_brokers.items())]
            return {entry.key.name: self._encode(entry.key, [entry], is_read_only=False) for entry in own}
        check_broker(name, configs)
        return {
            key.name: self._encode(key, configs.layers(key.name), is_read_only=not key.is_dynamic)
            for key in sorted(BROKER_KEYS.values())
        }

    def _group_fragments(self, name: str) -> Fragments:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "the group name is empty")
        own = self._broker.metadata.group_overrides.get(name, {})
        return {
            key.name: self._encode(key, group_layers(key.name, own, self._broker.configs), is_read_only=False)
            for key in GROUP_KEYS.values()
        }

    def _logger_fragments(self, name: str) -> Fragments:
        check_broker(name, self._broker.configs)
        return {logger: self._encode_level(logger, level) for logger, level in levels().items()}

    def _encode_level(self, logger: str, level: str) -> bytes:
        described = DescribeConfigsResourceResult(name=logger, value=level, config_source=ConfigSource.LOGGER)
        return encode_structure(described, DescribeConfigsResponse, self._version)

    def _encode(self, key: ConfigKey, layers: Iterable[Entry], *, is_read_only: bool) -> bytes:
        """`layers` as in `BrokerConfigs.layers`: the first one is the value, all of them are its synonyms."""
        values = list(layers)
        first = values[0]
        value = first.text if first.key.name == key.name else first.text_in_units
        described = DescribeConfigsResourceResult(
            name=key.name,
            value=None if key.is_secret else value,
            is_sensitive=key.is_secret,
            read_only=is_read_only,
            config_source=first.source,
            config_type=key.type,
            documentation=key.doc if self._with_documentation else None,
        )
        if self._with_synonyms:
            described.synonyms = [
                DescribeConfigsSynonym(
                    name=layer.key.name, value=None if key.is_secret else layer.text, source=layer.source
                )
                for layer in values
                if layer.text is not None
            ]
        return encode_structure(described, DescribeConfigsResponse, self._version)


API = Api(
    ApiKey.DESCRIBE_CONFIGS,
    describe_configs,
    elements_max=3_000,  # 60 ms, and 15 MB of configs with their documentation
)
