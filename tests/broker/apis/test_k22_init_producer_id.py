"""InitProducerId: an id that nobody has had before, and never will again."""

from errno import ENOSPC
from pathlib import Path
from typing import Any

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


def test_transactional_ids_are_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        for name, code in (("mine", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("", ErrorCode.INVALID_REQUEST)):
            refused = broker.ask(request(transactional_id=name), 4)
            assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)
