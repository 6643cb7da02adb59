"""Transactions of producers, through the requests of their clients."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, fetch_request, from_offset, only_partition, resolved
from transactions import (
    COMMITTED_ONLY,
    COPIER,
    TransactionalProducer,
    Waiting,
    check_replay,
    committed,
    known,
    last_stable_offset,
    logged,
    run_a_job,
)

from tailrace.broker.transactions import coordinator as coordinators
from tailrace.broker.transactions.coordinator import COMPLETION_WAIT_MS, ParkedResponse
from tailrace.broker.transactions.state import LAST_EPOCH, State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

DAY_MS = 24 * 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        yield broker
        broker.hold_jobs = False
        broker.run_jobs()
        check_replay(broker)


versions = pytest.mark.parametrize("version", [0, 2])
outcomes = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@versions
def test_committed_records_are_there_together_and_aborted_ones_never(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=version)
    for number in range(4):
        for partition in (0, 1):
            assert producer.produce(b"%d" % number, partition=partition).error_code == 0
        before = [committed(broker, partition) for partition in (0, 1)]
        check_replay(broker)
        assert producer.end(commit=number % 2 == 0).error_code == 0
        check_replay(broker)
        if number % 2:
            assert [committed(broker, partition) for partition in (0, 1)] == before
    assert [committed(broker, partition) for partition in (0, 1)] == [[b"0", b"2"]] * 2
    assert [broker.values(partition=partition)[::2] for partition in (0, 1)] == [[b"0", b"1", b"2", b"3"]] * 2
    assert [last_stable_offset(broker, partition) for partition in range(3)] == [8, 8, 0]
    ended = broker.broker.transactions.ended
    assert (ended["committed"], ended["aborted"]) == (2, 2)


def test_each_transaction_of_the_second_version_has_an_epoch_of_its_own(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    assert producer.identity == (0, 0)
    for epoch in range(1, 4):
        producer.produce(b"a")
        answer = producer.commit()
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, epoch)


def test_a_producer_of_the_first_version_keeps_its_epoch(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, version=0)
    for commit in (True, False, True):
        assert producer.produce(b"a").error_code == 0
        assert producer.end(commit=commit).error_code == 0
        assert known(broker).epoch == 0
    assert committed(broker) == [b"a", b"a"]


# Ended twice


@outcomes
@versions
def test_a_second_connection_that_ends_the_same_transaction_gets_the_same_response(
    broker: LocalBroker, version: int, commit: bool
) -> None:
    producer = TransactionalProducer(broker, version=version)
    producer.produce(b"a")
    broker.hold_jobs = True
    request, of_api = producer.end_request(commit=commit), {0: 4, 2: 5}[version]
    both = [Waiting(broker, request, of_api) for _ in range(2)]
    assert [one.answer for one in both] == [None, None]
    broker.run_jobs()
    first, second = (one.answer for one in both)
    assert first == second
    assert first.error_code == 0
    assert broker.log().end_offset == 2, "one marker"


@outcomes
def test_a_repeated_end_of_version_5_is_recognised_by_the_epoch_before(broker: LocalBroker, commit: bool) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    request = producer.end_request(commit=commit)
    first = broker.ask(request, 5)
    assert broker.ask(request, 5) == first
    assert (first.error_code, first.producer_epoch) == (0, 1)
    request.committed = not commit
    assert broker.ask(request, 5).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("begun", ["empty", "committed", "aborted"])
def test_an_abort_of_nothing_succeeds_and_raises_the_epoch_each_time(broker: LocalBroker, begun: str) -> None:
    producer = TransactionalProducer(broker)
    if begun != "empty":
        producer.produce(b"a")
        producer.end(commit=begun == "committed")
    _, epoch = producer.identity
    end = broker.log().end_offset if begun != "empty" else 0
    for number in (1, 2, 3):
        answer = producer.abort()
        assert (answer.error_code, answer.producer_epoch) == (0, epoch + number)
        check_replay(broker)
    assert (broker.partition().log is not None) is (begun != "empty")
    assert not end or broker.log().end_offset == end, "no marker"
    assert producer.produce(b"b").error_code == 0
    assert producer.commit().error_code == 0
    assert committed(broker)[-1:] == [b"b"]


@versions
def test_nothing_cannot_be_committed(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=version)
    assert producer.commit().error_code == ErrorCode.INVALID_TXN_STATE


def test_the_first_version_repeats_the_same_end_and_refuses_the_other(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker, version=0)
    assert producer.abort().error_code == ErrorCode.INVALID_TXN_STATE, "nothing was begun"
    producer.produce(b"a")
    assert [producer.commit().error_code for _ in range(3)] == [0, 0, 0]
    assert producer.abort().error_code == ErrorCode.INVALID_TXN_STATE


# Producers fence each other


@versions
def test_a_new_producer_aborts_the_open_transaction_and_fences_the_one_before(
    broker: LocalBroker, version: int
) -> None:
    old = TransactionalProducer(broker, version=version)
    old.produce(b"old")
    new = TransactionalProducer(broker, version=version)
    assert (old.identity, new.identity) == ((0, 0), (0, 2)), "the abort has an epoch, too"
    assert old.produce(b"late", version=12).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.add(0) == ErrorCode.PRODUCER_FENCED
    assert old.commit().error_code == ErrorCode.PRODUCER_FENCED
    assert old.init(old.identity).error_code == ErrorCode.PRODUCER_FENCED
    new.produce(b"new")
    new.commit()
    assert committed(broker) == [b"new"]
    assert broker.broker.transactions.ended["fenced"] == 1


def test_a_fenced_producer_cannot_abort_the_transaction_of_the_one_after_it(broker: LocalBroker) -> None:
    old = TransactionalProducer(broker)
    new = TransactionalProducer(broker)
    new.produce(b"new")
    assert old.init(old.identity).error_code == ErrorCode.PRODUCER_FENCED
    assert new.commit().error_code == 0
    assert committed(broker) == [b"new"]


def test_a_repeated_request_to_begin_gets_the_same_epoch_until_a_restart(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    before = producer.identity
    answers = [producer.init(before) for _ in range(3)]
    assert [(one.error_code, one.producer_epoch) for one in answers] == [(0, 1)] * 3
    broker.restart()
    broker.tick()
    assert broker.ask(producer.init_request(before), 5).error_code == ErrorCode.PRODUCER_FENCED, "as in Kafka"


def test_a_timeout_of_no_time_or_too_much_is_refused(broker: LocalBroker) -> None:
    for timeout_ms, code in ((0, 50), (-1, 50), (900_001, 50), (900_000, 0), (1, 0)):
        producer = TransactionalProducer(broker, timeout_ms=timeout_ms, begins=False)
        assert producer.init().error_code == code
        assert (known(broker).timeout_ms == timeout_ms) if not code else True


# Epochs run out


def with_epoch(broker: LocalBroker, epoch: int, **fields: Any) -> TransactionalProducer:
    """A producer that has had so many epochs."""
    producer = TransactionalProducer(broker, **fields)
    transactions = broker.broker.transactions
    transactions.write(COPIER, known(broker)._replace(epoch=epoch))
    producer.identity = known(broker).producer_id, epoch
    broker.run_jobs()
    return producer


@pytest.mark.parametrize("keeps", [True, False], ids=["known", "new"])
def test_after_the_last_epoch_a_producer_gets_a_new_id(broker: LocalBroker, keeps: bool) -> None:
    producer = with_epoch(broker, LAST_EPOCH - 1)
    old_id, _ = producer.identity
    assert producer.init(producer.identity if keeps else (-1, -1)).producer_epoch == LAST_EPOCH
    answer = producer.init(producer.identity if keeps else (-1, -1))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != old_id
    assert producer.produce(b"a").error_code == 0
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"a"]


@outcomes
def test_the_last_epoch_of_the_second_version_is_followed_by_a_new_id(broker: LocalBroker, commit: bool) -> None:
    producer = with_epoch(broker, LAST_EPOCH)
    old = producer.identity
    producer.produce(b"a")
    request = producer.end_request(commit=commit)
    answer = producer.end(commit=commit)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != old[0]
    assert broker.ask(request, 5) == answer, "repeated, under the producer id before"
    assert producer.produce(b"b", base_sequence=0).error_code == 0
    assert producer.commit().producer_epoch == 1
    assert committed(broker) == ([b"a"] if commit else []) + [b"b"]


@versions
def test_a_fence_after_the_last_epoch_gives_the_next_producer_a_new_id(broker: LocalBroker, version: int) -> None:
    old = with_epoch(broker, LAST_EPOCH, version=version)
    old.produce(b"old")
    new = TransactionalProducer(broker, version=version)
    assert new.identity[0] != old.identity[0]
    assert new.identity[1] in (0, 1)
    assert old.produce(b"late", version=12).error_code in (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert new.produce(b"new").error_code == 0
    assert new.commit().error_code == 0
    assert committed(broker) == [b"new"]


def test_the_next_transaction_under_a_new_id_waits_for_the_end_of_the_one_before(broker: LocalBroker) -> None:
    producer = with_epoch(broker, LAST_EPOCH)
    producer.produce(b"a")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    next_id = known(broker).next_producer_id
    early = TransactionalProducer(broker, begins=False)
    early.identity = next_id, 0
    assert only_partition(broker.ask(early.produce_request(b"b"), 12)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    adding = Waiting(broker, early.add_request(0), 3)
    assert not adding.is_answered
    broker.hold_jobs = False
    broker.run_jobs()
    assert (ending.answer.error_code, ending.answer.producer_id) == (0, next_id)
    assert adding.is_answered
    assert known(broker).partitions == {("orders", 0)}


# Deadlines


@versions
def test_a_transaction_is_aborted_exactly_after_its_timeout(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker, version=version, timeout_ms=10_000)
    producer.produce(b"a")
    broker.tick(4_000)
    producer.produce(b"b", partition=1)  # does not prolong it
    broker.tick(5_999)
    assert known(broker).state is State.ONGOING
    assert broker.broker.next_deadline == broker.steady_ms + 1
    broker.tick(1)
    assert known(broker).state is State.COMPLETE_ABORT
    check_replay(broker)
    assert broker.broker.transactions.ended["timed_out"] == 1
    assert (committed(broker), committed(broker, 1)) == ([], [])
    assert [last_stable_offset(broker, partition) for partition in (0, 1)] == [2, 2]
    assert producer.produce(b"late", version=12).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.init(producer.identity).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.commit().error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("days", [400, -400])
def test_a_wall_clock_that_jumps_does_not_change_a_timeout(broker: LocalBroker, days: int) -> None:
    producer = TransactionalProducer(broker, timeout_ms=10_000)
    producer.produce(b"a")
    broker.tick(4_000)
    broker.jump(days * DAY_MS)
    producer.produce(b"b", partition=1)
    broker.tick(5_999)
    assert known(broker).state is State.ONGOING
    broker.tick(1)
    assert known(broker).state is State.COMPLETE_ABORT


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_after_a_restart_the_rest_of_the_timeout_counts(broker: LocalBroker, how: str) -> None:
    producer = TransactionalProducer(broker, timeout_ms=10_000)
    producer.produce(b"a")
    broker.tick(4_000)
    getattr(broker, how)()
    broker.tick(5_999)
    assert known(broker).state is State.ONGOING
    broker.tick(1)
    assert known(broker).state is State.COMPLETE_ABORT
    assert last_stable_offset(broker) == 2


def test_a_timeout_that_passed_while_the_broker_was_down_ends_the_transaction_at_the_start(
    broker: LocalBroker,
) -> None:
    TransactionalProducer(broker, timeout_ms=10_000).produce(b"a")
    broker.close()
    broker.now_ms += 3_600_000
    broker.open()
    broker.tick(1)
    assert known(broker).state is State.COMPLETE_ABORT


def test_ids_that_are_not_used_for_a_week_are_forgotten(broker: LocalBroker) -> None:
    idle = TransactionalProducer(broker, "idle")
    busy = TransactionalProducer(broker, "busy")
    open_one = TransactionalProducer(broker, "open", timeout_ms=900_000)
    broker.tick(6 * DAY_MS)
    busy.produce(b"a")
    busy.commit()
    broker.restart()
    broker.tick(DAY_MS - 1)
    open_one.produce(b"a", partition=1)
    assert set(logged(broker)) == {"idle", "busy", "open"}
    broker.tick(1)
    check_replay(broker)
    assert set(logged(broker)) == {"busy", "open"}
    assert idle.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert idle.commit().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert idle.init().producer_epoch == 0
    open_one.abort()


# Waiting for the end of the transaction before


def held_end(broker: LocalBroker, producer: TransactionalProducer) -> Waiting:
    """An EndTxn whose decision is not on disk."""
    broker.hold_jobs = True
    return Waiting(broker, producer.end_request(commit=True), 5)


def test_requests_wait_for_the_end_of_the_transaction_before(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    ending = held_end(broker, producer)
    beginning = [Waiting(broker, producer.init_request(), 5) for _ in range(2)]
    assert [one.answer for one in beginning] == [None, None]
    broker.run_jobs()
    assert ending.answer.producer_epoch == 1
    assert [one.answer.producer_epoch for one in beginning] == [2, 3], "in the order in which they came"
    assert committed(broker) == [b"a"]


def test_a_request_that_waits_for_too_long_is_refused_and_changes_nothing(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    ending = held_end(broker, producer)
    waiting = {
        "InitProducerId": Waiting(broker, producer.init_request(), 5),
        "EndTxn": Waiting(broker, producer.end_request(commit=False), 5),
    }
    adding = Waiting(broker, producer.add_request(1), 3)
    for one in (*waiting.values(), adding):
        assert one.delayed is not None
        assert one.delayed.wait_ms == COMPLETION_WAIT_MS == 5_000
        one.expire()
    assert {one.answer.error_code for one in waiting.values()} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert adding.answer.results_by_topic[0].results_by_partition[0].partition_error_code == 51
    broker.run_jobs()
    assert (ending.answer.error_code, known(broker).epoch, known(broker).partitions) == (0, 1, frozenset())


def test_nothing_is_kept_of_requests_that_have_waited_for_too_long(broker: LocalBroker) -> None:
    """Clients repeat them for as long as a partition is offline, which may be days."""
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    held_end(broker, producer)
    for finish in ("expire", "abandon"):
        getattr(Waiting(broker, producer.init_request(), 5).delayed, finish)()
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, ParkedResponse)]
    broker.run_jobs()
    assert known(broker).epoch == 1


def test_a_client_that_is_gone_begins_nothing_any_more(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    held_end(broker, producer)
    gone = Waiting(broker, producer.init_request(), 5)
    assert gone.delayed is not None
    gone.delayed.abandon()
    broker.run_jobs()
    assert known(broker).epoch == 1


def test_an_end_is_answered_when_the_markers_are_on_disk(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    ending = held_end(broker, producer)
    while not ending.is_answered:
        assert committed(broker) != [b"a"] or committed(broker, 1) != [b"a"]
        assert run_a_job(broker)
    assert (committed(broker), committed(broker, 1)) == ([b"a"], [b"a"])


def test_a_consumer_that_waits_for_the_commit_is_woken_once(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    request = fetch_request(from_offset(0), max_wait_ms=60_000, isolation_level=COMMITTED_ONLY)
    answers = resolved(broker.begin(request, 12))
    producer.produce(b"b")
    broker.tick()
    assert answers == []
    producer.commit()
    assert len(answers) == 1
    assert committed(broker) == [b"a", b"b"]


def test_describe_producers_shows_where_an_open_transaction_begins(broker: LocalBroker) -> None:
    broker.produce(b"before")
    producer = TransactionalProducer(broker)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    starts = []
    for step in ("produce", "commit"):
        if step == "produce":
            producer.produce(b"a")
        else:
            producer.commit()
        (found,) = only_partition(broker.ask(request, 0)).active_producers
        starts.append((found.current_txn_start_offset, found.producer_epoch))
    assert starts == [(1, 0), (-1, 1)]


# Topics that are deleted, and limits


@versions
@outcomes
def test_a_transaction_ends_although_a_topic_of_it_was_deleted(broker: LocalBroker, version: int, commit: bool) -> None:
    broker.create_topic("gone", partitions=2)
    producer = TransactionalProducer(broker, version=version)
    producer.produce(b"a")
    producer.produce(b"x", topic="gone", partition=1)
    broker.delete_topic("gone")
    broker.tick()
    assert producer.end(commit=commit).error_code == 0
    assert committed(broker) == ([b"a"] if commit else [])
    assert last_stable_offset(broker) == 2


def test_a_topic_deleted_while_its_marker_is_being_flushed_does_not_hold_up_the_end(broker: LocalBroker) -> None:
    broker.create_topic("gone")
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    producer.produce(b"x", topic="gone")
    ending = held_end(broker, producer)
    gone = broker.log("gone")
    while gone.end_offset < 2:
        assert run_a_job(broker)
    assert not ending.is_answered
    broker.delete_topic("gone")
    broker.hold_jobs = False
    broker.run_jobs()
    for _ in range(3):
        broker.tick(1_000)
    assert ending.answer.error_code == 0
    assert committed(broker) == [b"a"]


def test_a_topic_made_anew_under_the_same_name_takes_part_like_any_other(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"old")
    broker.delete_topic()
    broker.tick()
    broker.create_topic(partitions=1)
    producer.sequences.clear()
    assert producer.produce(b"new").error_code == 0
    assert committed(broker) == []
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"new"]


def test_more_transactional_ids_than_the_limit_are_refused(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert coordinators.TRANSACTIONAL_IDS_MAX == 100_000
    monkeypatch.setattr(coordinators, "TRANSACTIONAL_IDS_MAX", 2)
    first = TransactionalProducer(broker, "a")
    TransactionalProducer(broker, "b")
    refused = TransactionalProducer(broker, "c", begins=False).init()
    assert (refused.error_code, refused.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert first.init().error_code == 0, "those that are known go on"


def test_a_transaction_has_ten_thousand_partitions_and_ends(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=10_001)
        producer = TransactionalProducer(broker, version=0)
        assert producer.add(*range(10_000)) == 0
        assert producer.add(*range(5)) == 0
        assert producer.add(10_000) == ErrorCode.INVALID_REQUEST
        assert producer.produce(b"a", version=11).error_code == 0
        assert producer.commit().error_code == 0
        assert committed(broker) == [b"a"]
        assert len(broker.directory.logs) == 3, "a partition without records needs no marker, and gets no log"
        check_replay(broker)
