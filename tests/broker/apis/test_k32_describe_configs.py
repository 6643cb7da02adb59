"""DescribeConfigs: every config, its value, and where that comes from."""

from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker

from tailrace.broker.apis import k32_describe_configs
from tailrace.broker.configs.registry import ConfigSource
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

VERSIONS = range(1, 5)
TOPIC, BROKER = 2, 4
MIN_INSYNC = "min.insync.replicas"


def describe(
    broker: LocalBroker, kind: int, name: str, *keys: str, version: int = 4, wants_all: bool = False, **fields: Any
) -> Any:
    """The result for one resource."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys or wants_all else None
    )
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource], **fields), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def configs(broker: LocalBroker, kind: int, name: str, *keys: str, **options: Any) -> dict[str, Any]:
    result = describe(broker, kind, name, *keys, **options)
    assert (result.error_code, result.error_message) == (0, None)
    return {config.name: config for config in result.configs}


def set_config(broker: LocalBroker, kind: int, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, config_operation=0, value=value)]
    )
    response = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


# Topics


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_has_every_config_with_its_default_source_and_type(tmp_path: Path, version: int) -> None:
    """Pitfall 40."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        found = configs(broker, TOPIC, "orders", version=version)
        assert found.keys() == TOPIC_KEYS.keys()
        for name, key in TOPIC_KEYS.items():
            config = found[name]
            source = ConfigSource.ALL_BROKERS_AT_RUN_TIME if name == MIN_INSYNC else ConfigSource.DEFAULT
            assert (config.value, config.config_source) == (key.default, source)
            assert (config.read_only, config.is_sensitive, config.synonyms) == (False, False, [])
            assert config.config_type == (key.type if version >= 3 else 0)
            assert not config.documentation


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topics_own_value_is_said_to_be_its_own(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", retention_ms="5")
        config = configs(broker, TOPIC, "orders", "retention.ms", version=version)["retention.ms"]
        assert (config.value, config.config_source) == ("5", ConfigSource.TOPIC)


@pytest.mark.parametrize("version", VERSIONS)
def test_synonyms_are_all_the_values_that_there_are_the_one_that_counts_first(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path, {"log.retention.ms": "4"}) as broker:
        broker.create_topic("orders", retention_ms="1")
        set_config(broker, BROKER, "1", "log.retention.ms", "2")
        set_config(broker, BROKER, "", "log.retention.ms", "3")
        layers = [
            ("log.retention.ms", "2", ConfigSource.BROKER_AT_RUN_TIME),
            ("log.retention.ms", "3", ConfigSource.ALL_BROKERS_AT_RUN_TIME),
            ("log.retention.ms", "4", ConfigSource.BROKER_AT_START),
            ("log.retention.hours", "168", ConfigSource.DEFAULT),
        ]
        asked: dict[str, Any] = {"include_synonyms": True, "version": version}
        of_topic = configs(broker, TOPIC, "orders", "retention.ms", **asked)["retention.ms"]
        assert synonyms(of_topic) == [("retention.ms", "1", ConfigSource.TOPIC), *layers]
        of_broker = configs(broker, BROKER, "1", "log.retention.ms", **asked)["log.retention.ms"]
        assert (of_broker.value, of_broker.config_source) == ("2", ConfigSource.BROKER_AT_RUN_TIME)
        assert synonyms(of_broker) == layers


def test_a_topic_without_a_value_has_the_brokers(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.retention.ms": "4"}) as broker:
        broker.create_topic()
        config = configs(broker, TOPIC, "orders", "retention.ms")["retention.ms"]
        assert (config.value, config.config_source) == ("4", ConfigSource.BROKER_AT_START)


def test_hours_of_the_broker_are_milliseconds_for_topics_and_listed_as_hours(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"log.retention.hours": "2", "log.retention.minutes": "3"}) as broker:
        broker.create_topic()
        asked: dict[str, Any] = {"include_synonyms": True, "include_documentation": True}
        of_topic = configs(broker, TOPIC, "orders", "retention.ms", **asked)["retention.ms"]
        assert (of_topic.value, of_topic.config_source) == ("180000", ConfigSource.BROKER_AT_START)
        assert of_topic.config_type == TOPIC_KEYS["retention.ms"].type
        assert of_topic.documentation == TOPIC_KEYS["retention.ms"].doc
        assert synonyms(of_topic) == [
            ("log.retention.minutes", "3", ConfigSource.BROKER_AT_START),
            ("log.retention.hours", "2", ConfigSource.BROKER_AT_START),
            ("log.retention.hours", "168", ConfigSource.DEFAULT),
        ]
        of_broker = configs(broker, BROKER, "1", **asked)
        assert (of_broker["log.retention.ms"].value, synonyms(of_broker["log.retention.ms"])) == (None, [])
        assert of_broker["log.retention.hours"].value == "2"
        assert of_broker["log.retention.hours"].read_only


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_is_there_where_it_is_asked_for(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        found = configs(broker, TOPIC, "orders", version=version, include_documentation=True)
        assert {name: config.documentation for name, config in found.items()} == {
            name: key.doc for name, key in TOPIC_KEYS.items()
        }


def test_only_the_keys_that_are_asked_for_are_said_and_unknown_ones_left_out(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert list(configs(broker, TOPIC, "orders", "segment.ms", "nothing", "segment.ms")) == ["segment.ms"]
        assert configs(broker, TOPIC, "orders", wants_all=True).keys() == TOPIC_KEYS.keys(), "as in Kafka"


def test_an_internal_topic_may_be_read(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert configs(broker, TOPIC, "__tailrace_metadata").keys() == TOPIC_KEYS.keys()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (99, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path: Path, version: int, kind: int, name: str, code: ErrorCode) -> None:
    with LocalBroker(tmp_path) as broker:
        result = describe(broker, kind, name, version=version)
        assert (result.error_code, result.configs) == (code, [])
        assert result.error_message


# Brokers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_has_every_config_and_says_which_need_a_start(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path, {"num.partitions": "3"}) as broker:
        found = configs(broker, BROKER, "1", version=version)
        assert list(found) == sorted(BROKER_KEYS)
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", 4)
        assert {name for name, config in found.items() if config.read_only} == {
            name for name, key in BROKER_KEYS.items() if not key.is_dynamic
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_do_not_get_the_values_of_secrets(tmp_path: Path, version: int) -> None:
    """The URL of a webhook is often all that is needed to post there."""
    at_start = {"tailrace.alert.webhook.url": "https://hooks.example.org/T0/B0/secret", "num.partitions": "3"}
    with LocalBroker(tmp_path, at_start) as broker:
        options = {"include_synonyms": True} if version >= 1 else {}
        found = configs(broker, BROKER, "1", version=version, **options)
        assert {name for name, config in found.items() if config.is_sensitive} == {
            "tailrace.alert.command",
            "tailrace.alert.webhook.url",
        }
        url = found["tailrace.alert.webhook.url"]
        assert url.value is None
        assert all(value is None for _, value, _ in synonyms(url))


@pytest.mark.parametrize("version", VERSIONS)
def test_all_brokers_have_what_was_set_for_all_of_them(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path, {"log.retention.bytes": "9"}) as broker:
        assert configs(broker, BROKER, "", version=version).keys() == {MIN_INSYNC}
        set_config(broker, BROKER, "", "log.retention.ms", "3")
        set_config(broker, BROKER, "1", "log.retention.ms", "2")
        config, _ = configs(broker, BROKER, "", version=version).values()
        assert (config.name, config.value, config.config_source) == ("log.retention.ms", "3", 3)


@pytest.mark.parametrize(("at_start", "layers"), [({}, []), ({MIN_INSYNC: "2"}, [(MIN_INSYNC, "2", 4)])])
def test_the_least_number_of_replicas_is_set_for_all_brokers_as_kafka_does_by_itself(
    tmp_path: Path, at_start: dict[str, str], layers: list[tuple[str, str, int]]
) -> None:
    """The same was asked of Kafka 4.3.1."""
    with LocalBroker(tmp_path, at_start) as broker:
        broker.create_topic()
        value = at_start.get(MIN_INSYNC, "1")
        expected = [(MIN_INSYNC, value, 3), *layers, (MIN_INSYNC, "1", 5)]
        for kind, name in ((TOPIC, "orders"), (BROKER, "1")):
            found = configs(broker, kind, name, MIN_INSYNC, include_synonyms=True)[MIN_INSYNC]
            assert (found.value, found.config_source, found.read_only) == (value, 3, False)
            assert synonyms(found) == expected
        assert configs(broker, BROKER, "")[MIN_INSYNC].value == value
        set_config(broker, BROKER, "", MIN_INSYNC, "3")
        set_config(broker, TOPIC, "orders", MIN_INSYNC, "4")
        own = configs(broker, TOPIC, "orders", MIN_INSYNC, include_synonyms=True)[MIN_INSYNC]
        assert synonyms(own) == [(MIN_INSYNC, "4", 1), (MIN_INSYNC, "3", 3), *expected[1:]]


# Many


def test_resources_stand_for_themselves_and_may_be_there_twice(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in [(TOPIC, "orders"), (TOPIC, "nobody"), (BROKER, "1"), (TOPIC, "orders")]
        ]
        results = broker.ask(DescribeConfigsRequest(resources=resources), 4).results
        assert [len(result.configs) for result in results] == [len(TOPIC_KEYS), 0, len(BROKER_KEYS), len(TOPIC_KEYS)]
        assert results[0] == results[3]


def test_topics_with_and_without_values_of_their_own_do_not_mix(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("a", retention_ms="1")
        broker.create_topic("b")
        broker.create_topic("c", retention_ms="2", segment_ms="3")
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in "abca"
        ]
        results = broker.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4).results
        own = [
            {config.name: config.value for config in result.configs if config.config_source == ConfigSource.TOPIC}
            for result in results
        ]
        assert own == [
            {"retention.ms": "1"},
            {},
            {"retention.ms": "2", "segment.ms": "3"},
            {"retention.ms": "1"},
        ]


def test_an_answer_that_would_be_too_large_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k32_describe_configs, "ANSWER_BYTES_MAX", 3000)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=None)
        results = broker.ask(DescribeConfigsRequest(resources=[resource] * 5), 4).results
        codes = [result.error_code for result in results]
        assert codes[0] == 0
        assert codes[-1] == ErrorCode.INVALID_REQUEST
