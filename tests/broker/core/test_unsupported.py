"""Clients that ask for features the broker lacks: refused each time, logged once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.core.unsupported import LOGGED_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest

TRANSACTION = 1


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


def test_transactions_are_refused_with_what_each_client_shows_best(local_broker: LocalBroker) -> None:
    old = local_broker.ask(FindCoordinatorRequest(key="t", key_type=TRANSACTION), 2)
    assert old.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "remove transactional.id" in old.error_message
    new = local_broker.ask(FindCoordinatorRequest(key="", coordinator_keys=["t"], key_type=TRANSACTION), 6)
    assert new.coordinators[0].error_code == ErrorCode.NONE  # or Java's admin tools could not ask for one
    refused = [
        local_broker.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1), version)
        for version in (4, 5)
    ]
    codes = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST]
    assert [response.error_code for response in refused] == codes
