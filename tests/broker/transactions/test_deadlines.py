"""When transactions are aborted by their timeouts and ids expire, and what waits for the end of a transaction."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import LocalBroker, fetch_request, from_offset, only_partition, resolved
from transactions import (
    COMMITTED_ONLY,
    TransactionalProducer,
    Waiting,
    check_replay,
    committed,
    known,
    last_stable_offset,
    logged,
    run_a_job,
)

from tailrace.broker.transactions.responses import COMPLETION_WAIT_MS, ParkedResponse
from tailrace.broker.transactions.state import State
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
