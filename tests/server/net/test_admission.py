"""Who may connect: limits of all, of an address, of a second; each can change while the broker runs."""

from pathlib import Path

import pytest
from nodes import RunningNode
from raw_client import RawClient

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.server.net.admission import Admission

HERE = "127.0.0.1"


def test_all_together_have_a_limit() -> None:
    admission = Admission(BrokerConfigs({"max.connections": "3"}))
    assert [admission.has_room(HERE, of_all=count, of_host=0) for count in (0, 2, 3)] == [True, True, False]


def test_an_address_has_a_limit_and_some_have_one_of_their_own() -> None:
    configs = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": f"{HERE}:4, [::1]:0"}
    admission = Admission(BrokerConfigs(configs))

    def limit_of(host: str) -> int:
        return sum(admission.has_room(host, of_all=0, of_host=count) for count in range(10))

    assert (limit_of("10.0.0.1"), limit_of(HERE), limit_of("::1")) == (2, 4, 0)


def test_so_many_are_accepted_in_a_second() -> None:
    admission = Admission(BrokerConfigs({"max.connection.creation.rate": "2"}))
    for _ in range(2):
        assert admission.wait_s(100.0) == 0
        admission.has_room(HERE, of_all=0, of_host=0)
    assert admission.wait_s(100.25) == pytest.approx(0.75)
    assert admission.wait_s(101.0) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.connections", "2"),
        ("max.connections.per.ip", "2"),
        ("max.connections.per.ip.overrides", f"{HERE}:2"),
    ],
)
def test_a_limit_that_is_set_while_it_runs_holds_for_the_next_one(tmp_path: Path, name: str, value: str) -> None:
    with RunningNode(tmp_path) as node, RawClient(node.address) as first, RawClient(node.address) as second:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        (answer,) = first.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0
        second.ask(ApiVersionsRequest(), 3)
        with RawClient(node.address) as third:
            assert third.is_closed()
        second.close()
        node.until(lambda: len(node.node.connections) == 1)
        with RawClient(node.address) as fourth:
            fourth.ask(ApiVersionsRequest(), 3)


def test_who_comes_too_soon_waits_and_is_served(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"max.connection.creation.rate": "1"}) as node, RawClient(node.address) as first:
        first.ask(ApiVersionsRequest(), 3)
        with RawClient(node.address) as second:
            second.send(ApiVersionsRequest(), 3)
            assert second.has_nothing(0.1)
            first.ask(ApiVersionsRequest(), 3)
            second.receive()
