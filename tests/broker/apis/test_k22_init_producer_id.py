"""InitProducerId: an id that nobody has had before, and never will again."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, resolved

from tailrace.broker.metadata.producer_ids import BLOCK
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.testing.faulty_files import FaultyFiles


def request(**fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})


def test_every_version_gets_a_new_id(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        answers = [broker.ask(request(), version) for version in range(6)]
        assert [answer.producer_id for answer in answers] == list(range(6))
        assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}


def test_ids_are_never_given_twice_whatever_happens(tmp_path: Path) -> None:
    """Pitfall 14: an id given twice turns new data into duplicates."""
    with LocalBroker(tmp_path) as broker:
        given: list[int] = []
        for start in ("kill", "restart", "kill", "kill"):
            given += [broker.ask(request(), 4).producer_id for _ in range(BLOCK + 7)]
            getattr(broker, start)()
        assert len(set(given)) == len(given)


def test_an_id_leaves_when_its_block_is_on_disk(tmp_path: Path) -> None:
    """Pitfall 14: blocks are recorded and flushed before use."""
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        answers = [resolved(broker.begin(request(), 4)) for _ in range(3)]
        assert answers == [[], [], []]
        broker.run_jobs()
        assert [answer[0].producer_id for answer in answers] == [0, 1, 2]
        assert broker.begin(request(), 4).producer_id == 3, "the rest of the block waits for nothing"


def test_a_block_that_could_not_be_recorded_is_not_given_away(tmp_path: Path) -> None:
    """Pitfall 14: or the next start would give the same ids."""
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        files.fail("write_at", ENOSPC, name=".log")
        refused = broker.ask(request(), 4)
        assert (refused.error_code, refused.producer_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        first = broker.ask(request(), 4).producer_id
        assert broker.broker.metadata.next_producer_id > first
        broker.kill()
        assert broker.ask(request(), 4).producer_id > first


def test_who_has_an_id_gets_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        first = broker.ask(request(), 4)
        again = broker.ask(request(producer_id=first.producer_id, producer_epoch=0), 4)
        assert (again.error_code, again.producer_epoch) == (0, 0)
        assert again.producer_id != first.producer_id


# With a transactional id: `tests/broker/transactions` has what follows from it


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        answers = [broker.ask(request(transactional_id="mine"), version) for _ in range(3)]
        other = broker.ask(request(transactional_id="other"), version)
        assert [(one.error_code, one.producer_id, one.producer_epoch) for one in answers] == [
            (0, answers[0].producer_id, epoch) for epoch in range(3)
        ]
        assert other.producer_id != answers[0].producer_id


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_knows_its_epoch_goes_on_or_is_fenced(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        begun = broker.ask(request(transactional_id="mine"), version)
        known = {"transactional_id": "mine", "producer_id": begun.producer_id, "producer_epoch": 0}
        assert broker.ask(request(**known), version).producer_epoch == 1
        broker.ask(request(transactional_id="mine"), version)
        refused = broker.ask(request(**known), version)
        code = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize(
    "fields",
    [
        {"transactional_id": ""},
        {"transactional_id": "mine", "producer_id": 5},
        {"transactional_id": "mine", "producer_epoch": 0},
        {"producer_id": 5},
    ],
)
def test_a_request_that_names_half_a_producer_is_invalid(tmp_path: Path, fields: dict[str, Any]) -> None:
    with LocalBroker(tmp_path) as broker:
        refused = broker.ask(request(**fields), 4)
        assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_an_epoch_leaves_when_it_is_on_disk(tmp_path: Path) -> None:
    """Or a kill would give it to two producers."""
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        answers = [resolved(broker.begin(request(transactional_id="mine"), 4)) for _ in range(2)]
        assert answers == [[], []]
        broker.run_flushes()
        assert [one.producer_epoch for (one,) in answers] == [0, 1]


def test_the_greatest_timeout_is_configured(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"transaction.max.timeout.ms": "70000"}) as broker:
        for timeout_ms, code in ((70_000, 0), (70_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT)):
            answer = broker.ask(request(transactional_id="mine", transaction_timeout_ms=timeout_ms), 4)
            assert answer.error_code == code
