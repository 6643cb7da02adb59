"""FindCoordinator: this broker is the one for every name, however it is asked."""

from pathlib import Path
from typing import Any

import pytest
from brokers import ENDPOINT, LocalBroker

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest


@pytest.mark.parametrize("kind", [0, 1], ids=["group", "transactional id"])
@pytest.mark.parametrize("version", range(4))
def test_one_name_is_answered_with_this_broker(tmp_path: Path, version: int, kind: int) -> None:
    fields: dict[str, Any] = {"key_type": kind} if version else {}  # before version 1 there are groups alone
    with LocalBroker(tmp_path) as broker:
        answer = broker.ask(FindCoordinatorRequest(key="billing", **fields), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, *ENDPOINT)


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize("kind", [0, 1], ids=["groups", "transactional ids"])
def test_many_names_are_answered_each(tmp_path: Path, version: int, kind: int) -> None:
    with LocalBroker(tmp_path) as broker:
        answer = broker.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"]), version)
        assert [(one.key, one.error_code, one.node_id, one.host) for one in answer.coordinators] == [
            ("a", 0, 1, ENDPOINT.host),
            ("b", 0, 1, ENDPOINT.host),
        ]


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_a_kind_of_coordinator_that_is_none_is_refused(tmp_path: Path, version: int) -> None:
    names = {"key": "a"} if version < 4 else {"coordinator_keys": ["a"]}
    with LocalBroker(tmp_path) as broker:
        answer = broker.ask(FindCoordinatorRequest(key_type=7, **names), version)
        told = answer if version < 4 else answer.coordinators[0]
        assert (told.error_code, told.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert "type 7" in told.error_message
