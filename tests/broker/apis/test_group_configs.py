"""Configs of groups (resource type 32): described, changed, listed, kept over a restart, and in effect."""

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import LocalBroker
from consumer_requests import Member, describe, pass_time
from group_requests import BILLING
from logs import DATA, memory_files

from tailrace.broker.configs.group_tables import GROUP_KEYS
from tailrace.broker.configs.keys import InvalidConfig
from tailrace.broker.configs.registry import BrokerConfigs, ConfigSource
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from tailrace.protocol.messages.alter_configs import AlterConfigsRequest
from tailrace.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.list_config_resources import ListConfigResourcesRequest

GROUP = 32
SET, DELETE = 0, 1
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(DATA, files=memory_files()) as made:
        made.create_topic("orders", 2)
        yield made


def alter(broker: LocalBroker, value: str | None, name: str = SESSION, group: str = BILLING, **fields: Any) -> int:
    change = AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
    answer = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], **fields), 1)
    return int(answer.responses[0].error_code)


def configs(broker: LocalBroker, group: str = BILLING) -> dict[str, tuple[str, int]]:
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    assert result.error_code == 0
    return {one.name: (one.value, one.config_source) for one in result.configs}


def listed(broker: LocalBroker) -> list[str]:
    answer = broker.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    return [one.resource_name for one in answer.config_resources]


def test_a_group_has_the_configs_of_the_broker_until_it_has_its_own(broker: LocalBroker) -> None:
    assert sorted(configs(broker)) == sorted(GROUP_KEYS)
    assert configs(broker)[SESSION] == ("45000", ConfigSource.DEFAULT)
    assert alter(broker, "50000") == 0
    assert configs(broker)[SESSION] == ("50000", ConfigSource.GROUP)
    assert configs(broker, "other")[SESSION] == ("45000", ConfigSource.DEFAULT)
    assert listed(broker) == [BILLING]
    broker.kill()
    assert configs(broker)[SESSION] == ("50000", ConfigSource.GROUP)
    assert alter(broker, None) == 0
    assert configs(broker)[SESSION] == ("45000", ConfigSource.DEFAULT)
    assert listed(broker) == []


@pytest.mark.parametrize(
    ("name", "value", "group", "code"),
    [
        (SESSION, "44999", BILLING, ErrorCode.INVALID_CONFIG),
        (SESSION, "60001", BILLING, ErrorCode.INVALID_CONFIG),
        (SESSION, "long", BILLING, ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "4999", BILLING, ErrorCode.INVALID_CONFIG),
        ("share.record.lock.duration.ms", "999", BILLING, ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", "soon", BILLING, ErrorCode.INVALID_CONFIG),
        ("tailrace.share.order", "size", BILLING, ErrorCode.INVALID_CONFIG),
        ("consumer.assignment.interval.ms", "15001", BILLING, ErrorCode.INVALID_CONFIG),
        ("retention.ms", "5", BILLING, ErrorCode.INVALID_CONFIG),
        (SESSION, "50000", "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_broker_does_not_allow_is_refused(
    broker: LocalBroker, name: str, value: str, group: str, code: ErrorCode
) -> None:
    assert alter(broker, value, name, group) == code
    assert listed(broker) == []


def test_a_group_has_the_configs_of_share_groups(broker: LocalBroker) -> None:
    assert configs(broker)["share.record.lock.duration.ms"] == ("30000", ConfigSource.DEFAULT)
    assert configs(broker)["share.isolation.level"] == ("read_uncommitted", ConfigSource.DEFAULT)
    assert alter(broker, "3000", "share.record.lock.duration.ms") == 0
    assert alter(broker, "read_committed", "share.isolation.level") == 0
    broker.kill()
    assert configs(broker)["share.record.lock.duration.ms"] == ("3000", ConfigSource.GROUP)
    assert configs(broker)["share.isolation.level"] == ("read_committed", ConfigSource.GROUP)


def test_the_interval_of_heartbeats_stays_below_the_timeout_of_sessions() -> None:
    limits = {"group.share.min.session.timeout.ms": "2000", "group.share.min.heartbeat.interval.ms": "1000"}
    with LocalBroker(DATA, limits, files=memory_files()) as broker:
        assert alter(broker, "4000", "share.session.timeout.ms") == ErrorCode.INVALID_CONFIG
        assert alter(broker, "3000", "share.heartbeat.interval.ms") == 0
        assert alter(broker, "4000", "share.session.timeout.ms") == 0
        assert alter(broker, None, "share.heartbeat.interval.ms") == ErrorCode.INVALID_CONFIG


def test_a_change_may_be_checked_only(broker: LocalBroker) -> None:
    assert alter(broker, "50000", validate_only=True) == 0
    assert alter(broker, "5", validate_only=True) == ErrorCode.INVALID_CONFIG
    assert listed(broker) == []


def test_alter_configs_replaces_all_of_them(broker: LocalBroker) -> None:
    alter(broker, "50000")
    whole = WholeResource(
        resource_type=GROUP,
        resource_name=BILLING,
        configs=[WholeConfig(name="consumer.heartbeat.interval.ms", value="6000")],
    )
    assert broker.ask(AlterConfigsRequest(resources=[whole]), 2).responses[0].error_code == 0
    assert configs(broker)[SESSION] == ("45000", ConfigSource.DEFAULT)
    assert configs(broker)["consumer.heartbeat.interval.ms"] == ("6000", ConfigSource.GROUP)


def test_they_take_effect_with_the_next_heartbeat(broker: LocalBroker) -> None:
    member = Member(broker, "a", "orders").join()
    alter(broker, "6000", "consumer.heartbeat.interval.ms")
    alter(broker, "60000")
    assert member.beat() == 0
    assert member.answer.heartbeat_interval_ms == 6000
    pass_time(broker, 55_000)
    assert len(describe(broker).members) == 1
    pass_time(broker, 10_000)
    assert describe(broker).members == []


@pytest.mark.parametrize(
    "given",
    [
        {"group.consumer.session.timeout.ms": "5000"},
        {"group.consumer.min.session.timeout.ms": "70000"},
        {"group.consumer.max.session.timeout.ms": "44000"},
        {"group.consumer.heartbeat.interval.ms": "20000"},
        {"group.consumer.min.heartbeat.interval.ms": "6000"},
        {"group.consumer.max.heartbeat.interval.ms": "4000"},
        {"group.consumer.assignment.interval.ms": "16000"},
        {"group.consumer.min.assignment.interval.ms": "2000"},
        {"group.consumer.max.assignment.interval.ms": "900"},
        {
            "group.consumer.heartbeat.interval.ms": "50000",
            "group.consumer.max.heartbeat.interval.ms": "50000",
        },
        {"group.consumer.assignors": ","},
        {"group.consumer.assignors": "sticky"},
        {"group.consumer.migration.policy": "sometimes"},
    ],
)
def test_broker_configs_that_contradict_each_other_are_refused_at_the_start(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfigs(given)


def test_the_brokers_configs_are_those_of_all_groups() -> None:
    given = {"group.consumer.session.timeout.ms": "50000", "group.consumer.assignors": "range"}
    with LocalBroker(DATA, given, files=memory_files()) as broker:
        broker.create_topic("orders", 2)
        assert configs(broker)[SESSION] == ("50000", ConfigSource.BROKER_AT_START)
        Member(broker, "a", "orders").join()
        assert describe(broker).assignor_name == "range"
        assert Member(broker, "b", "orders", server_assignor="uniform").beat() == ErrorCode.UNSUPPORTED_ASSIGNOR
