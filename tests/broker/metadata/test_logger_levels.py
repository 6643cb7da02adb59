"""Levels of loggers: shown, set while the broker runs, and taken back; nothing of it is kept."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.metadata.config_changes import Operation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import AlterConfigsRequest
from tailrace.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.protocol.messages.list_config_resources import ListConfigResourcesRequest

LOGGER = 8
PRODUCING = "tailrace.broker.produce"
SET, DELETE, APPEND = Operation.SET, Operation.DELETE, Operation.APPEND
Change = tuple[str, Operation, str | None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    loggers = [logging.getLogger(name) for name in ("tailrace", PRODUCING)]
    before = [logger.level for logger in loggers]
    logging.getLogger("tailrace").setLevel(logging.INFO)
    with LocalBroker(tmp_path) as broker:
        yield broker
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def alter(broker: LocalBroker, *changes: Change, name: str = "1", validate_only: bool = False) -> int:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    (answer,) = broker.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1
    ).responses
    return int(answer.error_code)


def shown(broker: LocalBroker, name: str = "1") -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=None)
    (answer,) = broker.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert all(config.config_source == 6 and not config.read_only for config in answer.configs)
    return {config.name: config.value for config in answer.configs}


def test_every_logger_of_ours_is_shown_with_the_level_it_goes_by(broker: LocalBroker) -> None:
    levels = shown(broker)
    assert levels["root"] == levels[PRODUCING] == "INFO"
    assert all(name == "root" or name.startswith("tailrace.") for name in levels)


def test_a_level_is_set_and_taken_back(broker: LocalBroker) -> None:
    logger = logging.getLogger(PRODUCING)
    end = broker.broker.metadata_log.log.end_offset
    assert alter(broker, (PRODUCING, SET, "DEBUG")) == 0
    assert logger.isEnabledFor(logging.DEBUG)
    assert shown(broker)[PRODUCING] == "DEBUG"
    assert alter(broker, (PRODUCING, DELETE, None), ("root", SET, "ERROR")) == 0
    assert not logger.isEnabledFor(logging.WARNING)
    assert shown(broker)[PRODUCING] == "ERROR"
    assert broker.broker.metadata_log.log.end_offset == end, "nothing is kept of it"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("tailrace.nothing", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("asyncio", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, SET, None), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("tailrace.broker", SET, "WARN"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_with_all_that_came_with_it(
    broker: LocalBroker, change: Change, code: ErrorCode
) -> None:
    before = shown(broker)
    assert alter(broker, ("tailrace.broker", SET, "DEBUG"), change) == code
    assert shown(broker) == before


def test_nothing_is_changed_where_it_is_only_asked_about_or_for_another_broker(broker: LocalBroker) -> None:
    before = shown(broker)
    assert alter(broker, (PRODUCING, SET, "DEBUG"), validate_only=True) == 0
    for name in ("2", ""):
        assert alter(broker, (PRODUCING, SET, "DEBUG"), name=name) == ErrorCode.INVALID_REQUEST
    whole = AlterConfigsRequest(resources=[WholeResource(resource_type=LOGGER, resource_name="1")])
    assert broker.ask(whole, 2).responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert shown(broker) == before
    assert shown(broker, "2") == {}


def test_they_are_listed(broker: LocalBroker) -> None:
    (listed,) = broker.ask(ListConfigResourcesRequest(resource_types=[LOGGER]), 1).config_resources
    assert (listed.resource_type, listed.resource_name) == (LOGGER, "1")
