"""DescribeCluster: who we are."""

from pathlib import Path

import pytest
from brokers import ENDPOINT, LocalBroker

from tailrace.broker.apis.k03_metadata import CLUSTER_OPERATIONS, NOT_ASKED
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_cluster import DescribeClusterRequest

VERSIONS = range(3)


@pytest.mark.parametrize("version", VERSIONS)
def test_there_is_one_broker_which_is_the_controller(tmp_path: Path, version: int) -> None:
    """Pitfall 12."""
    with LocalBroker(tmp_path, {"node.id": "7"}) as broker:
        response = broker.ask(DescribeClusterRequest(), version)
        assert response.error_code == 0
        assert response.cluster_id == broker.broker.metadata.cluster_id != ""
        assert response.controller_id == 7
        assert [(one.broker_id, one.host, one.port, one.is_fenced) for one in response.brokers] == [
            (7, ENDPOINT.host, ENDPOINT.port, False)
        ]
        assert response.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", VERSIONS)
def test_operations_are_said_where_they_are_asked_for(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        response = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        assert response.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096, "as Kafka says it"


@pytest.mark.parametrize("version", [1, 2])
def test_a_broker_is_no_controller_endpoint(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        controllers = broker.ask(DescribeClusterRequest(endpoint_type=2), version)
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert controllers.error_message
        assert broker.ask(DescribeClusterRequest(endpoint_type=3), version).error_code == (
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        assert controllers.brokers == []


def test_the_cluster_keeps_its_id(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        first = broker.ask(DescribeClusterRequest(), 2).cluster_id
        broker.restart()
        broker.kill()
        assert broker.ask(DescribeClusterRequest(), 2).cluster_id == first
