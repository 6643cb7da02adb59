"""Offsets of groups that are committed in a transaction."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from group_requests import BILLING, commit, fetch_request, offsets
from transactions import TransactionalProducer, Waiting, check_replay, committed, known

from tailrace.broker.transactions.state import State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest

versions = pytest.mark.parametrize("version", [0, 2])
PLACE = ("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        yield broker
        check_replay(broker)


def stable_offset(broker: LocalBroker) -> Any:
    """The offset, or the error code, for a consumer that wants to know of no offset that may still be dropped."""
    (answer,) = broker.ask(fetch_request(PLACE, require_stable=True), 9).groups
    ((one,),) = [topic.partitions for topic in answer.topics]
    return one.error_code or one.committed_offset


@versions
def test_offsets_count_with_the_records_of_their_transaction(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=version)
    for number, end in enumerate((producer.commit, producer.abort, producer.commit)):
        before = offsets(broker)
        producer.produce(b"%d" % number)
        for offset in (10 * number + 1, 10 * number + 2):  # twice in one transaction: they have no sequence
            assert producer.commit_offset(offset) == ErrorCode.NONE
        assert offsets(broker) == before
        assert stable_offset(broker) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert end().error_code == 0
        assert stable_offset(broker) == (2, 2, 22)[number]
    assert committed(broker) == [b"0", b"2"]
    broker.kill()
    assert offsets(broker) == {PLACE: 22}


@versions
def test_a_transaction_of_offsets_alone_has_its_marker_among_them(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=version)
    assert producer.commit_offset(7) == ErrorCode.NONE
    assert known(broker).partitions == {("__consumer_offsets", 0)}
    assert producer.commit().error_code == 0
    assert offsets(broker) == {PLACE: 7}
    assert broker.partition().log is None


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_commit_outside_the_transaction_counts_if_it_came_later(broker: LocalBroker, is_commit: bool) -> None:
    producer = TransactionalProducer(broker)
    producer.commit_offset(7)
    assert commit(broker, 3) == ErrorCode.NONE
    assert offsets(broker) == {PLACE: 3}
    producer.end(commit=is_commit)
    assert offsets(broker) == {PLACE: 3}, "the later record"
    producer.commit_offset(9)
    producer.end(commit=is_commit)
    assert offsets(broker) == {PLACE: 9 if is_commit else 3}
    broker.kill()
    assert offsets(broker) == {PLACE: 9 if is_commit else 3}


def test_a_group_that_is_deleted_takes_its_pending_offsets_along(broker: LocalBroker) -> None:
    commit(broker, 3)
    producer = TransactionalProducer(broker)
    producer.commit_offset(7)
    (deleted,) = broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results
    assert deleted.error_code == 0
    assert producer.commit().error_code == 0
    assert offsets(broker) == {}
    broker.kill()
    assert offsets(broker) == {}


@pytest.mark.parametrize("how", ["kill", "restart"])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_pending_offsets_are_known_after_a_start(broker: LocalBroker, how: str, is_commit: bool) -> None:
    producer = TransactionalProducer(broker)
    producer.commit_offset(7)
    getattr(broker, how)()
    broker.tick()
    assert stable_offset(broker) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end(commit=is_commit).error_code == 0
    assert stable_offset(broker) == (7 if is_commit else -1)


def test_a_timeout_drops_pending_offsets(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, timeout_ms=5_000)
    producer.commit_offset(7)
    broker.tick(5_001)
    assert known(broker).state is State.COMPLETE_ABORT
    assert stable_offset(broker) == -1
    assert producer.commit_offset(8) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert offsets(broker) == {}


@pytest.mark.parametrize("version", range(6))
def test_groups_that_were_not_added_are_refused_or_added(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    expected = ErrorCode.NONE
    if version < 5:
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    (answer,) = broker.ask(producer.offsets_request({("orders", 0): 7}), version).topics
    assert answer.partitions[0].error_code == expected
    assert known(broker).state is (State.ONGOING if version >= 5 else State.EMPTY)


@pytest.mark.parametrize("version", range(6))
def test_the_coordinators_refusals_come_as_codes_that_producers_expect(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    fenced = producer.offsets_request({("orders", 0): 7})
    producer.init()
    producer.produce(b"a")

    def code(request: Any) -> int:
        return int(broker.ask(request, version).topics[0].partitions[0].error_code)

    assert code(fenced) == ErrorCode.INVALID_PRODUCER_EPOCH
    fenced.producer_id = 4711
    assert code(fenced) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    late = code(producer.offsets_request({("orders", 0): 7}))
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS if version >= 5 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert late == concurrent, "which producers retry"
    broker.hold_jobs = False
    broker.run_jobs()
    assert ending.answer.error_code == 0
    assert offsets(broker) == {}
