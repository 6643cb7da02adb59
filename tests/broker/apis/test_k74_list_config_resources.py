"""ListConfigResources: what has configs."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPICS = [(2, "__tailrace_metadata"), (2, "a"), (2, "b")]
BROKER = (4, "1")


def listed(broker: LocalBroker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    response = broker.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


def test_no_types_is_all_of_them(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        for name in ("b", "a"):
            broker.create_topic(name)
        assert sorted(listed(broker)) == [*TOPICS, BROKER, (8, "1")]


@pytest.mark.parametrize(
    ("types", "found"),
    [([2], TOPICS), ([4], [BROKER]), ([2, 2], TOPICS), ([4, 2], [BROKER, *TOPICS]), ([16, 32], []), ([8], [(8, "1")])],
)
def test_only_the_types_that_are_asked_for_are_listed(tmp_path: Path, types: list[int], found: list[object]) -> None:
    with LocalBroker(tmp_path) as broker:
        for name in ("b", "a"):
            broker.create_topic(name)
        assert listed(broker, *types) == found


def test_version_0_knows_client_metrics_only(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert listed(broker, version=0) == []


@pytest.mark.parametrize("unknown", [0, 1, 99, -1])
def test_a_type_that_nobody_knows_is_refused(tmp_path: Path, unknown: int) -> None:
    with LocalBroker(tmp_path) as broker:
        response = broker.ask(ListConfigResourcesRequest(resource_types=[2, unknown]), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert response.config_resources == []
