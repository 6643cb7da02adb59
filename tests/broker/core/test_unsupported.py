"""Clients that ask for features the broker lacks: refused each time, logged once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.core.unsupported import LOGGED_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.fixture
def local_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        yield broker


def test_clients_are_refused_each_time_and_logged_once(
    local_broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=0)
    for client_id in ("one", "one", "two"):
        response = local_broker.ask(request, 1, client_id=client_id)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in response.error_message
    assert len(caplog.records) == 2
    for number in range(LOGGED_MAX + 10):
        local_broker.ask(request, 1, client_id=f"made up {number}")
    assert len(caplog.records) == LOGGED_MAX
