"""What the last run left open: completed if it was decided, aborted if the coordinator does not know it."""

import logging
from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, a_batch
from transactions import TransactionalProducer, Waiting, check_replay, committed, known, last_stable_offset, run_a_job

from tailrace.broker.core.delayed import STEPS_AT_ONCE
from tailrace.broker.transactions.state import State
from tailrace.log.disk.interface import Space
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tailrace.testing.faulty_files import FaultyFiles


def faulty(path: Path) -> tuple[LocalBroker, FaultyFiles]:
    files = FaultyFiles(OperatingSystemFiles())
    broker = LocalBroker(path, files=files)
    broker.create_topic(partitions=2)
    return broker, files


def failing_under(files: FaultyFiles, directory: str, error: int = ENOSPC, *, times: int = 1_000) -> Callable[[], None]:
    """Makes writes of the logs in this directory fail. Returns what heals them."""
    original, left = files.called, times

    def called(kind: str, path: str) -> None:
        nonlocal left
        original(kind, path)
        if left and kind == "write_at" and f"/{directory}/" in path and path.endswith(".log"):
            left -= 1
            raise OSError(error, "refused", path)

    files.called = called  # type: ignore[method-assign]

    def heal() -> None:
        files.called = original  # type: ignore[method-assign]

    return heal


def append_open(broker: LocalBroker, producer_id: int, partition: int = 0, epoch: int = 0) -> None:
    """What a crash leaves that took the records of the transaction log, or a directory from elsewhere."""
    broker.produce(b"before", partition=partition)
    data = a_batch(b"open", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    broker.log(index=partition).append(data, NOW_MS)


def test_a_transaction_that_the_coordinator_does_not_know_is_aborted_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        append_open(broker, 77, epoch=3)
        append_open(broker, 78, 1)
        broker.kill()
        broker.tick()
        assert [broker.log(index=index).producers.open_transactions() for index in (0, 1)] == [[], []]
        assert [last_stable_offset(broker, index) for index in (0, 1)] == [3, 3]
        assert [committed(broker, index) for index in (0, 1)] == [[b"before"], [b"before"]]
        assert broker.broker.transactions.ended["orphaned"] == 2
        assert [line for line in caplog.messages if line.startswith("aborted 2 transactions")]
        broker.restart()
        broker.tick()
        assert broker.broker.used_transactions is None, "there is nothing to end, and no transaction log"
        assert last_stable_offset(broker) == 3


def test_partitions_of_a_topic_that_is_followed_from_elsewhere_are_left_alone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        append_open(broker, 77)
        append_open(broker, 78, 1)
        broker.directory.abandon()
        broker.open()
        broker.broker.metadata.topics["orders"].is_followed = True
        broker.tick()
        assert [len(broker.log(index=index).producers.open_transactions()) for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize("version", [0, 2])
def test_open_transactions_that_are_known_stay_open(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        producers = [TransactionalProducer(broker, name, version=version) for name in ("a", "b")]
        for producer in producers:
            producer.produce(b"first", partition=0)
        append_open(broker, 77, 1)
        broker.kill()
        for number, producer in enumerate(producers):
            assert producer.produce(b"second", partition=number).error_code == 0
            assert producer.commit().error_code == 0
        assert committed(broker) == [b"first", b"first", b"second"]
        assert committed(broker, 1) == [b"before", b"second"]
        check_replay(broker)


def test_a_partition_that_an_open_transaction_does_not_have_is_aborted_there(tmp_path: Path) -> None:
    """The batch is on disk, and the record that adds its partition is not."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        producer = TransactionalProducer(broker)
        producer.produce(b"a")
        append_open(broker, producer.identity[0], 1, producer.identity[1])
        broker.kill()
        broker.tick()
        assert known(broker).state is State.ONGOING
        assert producer.commit().error_code == 0
        assert (committed(broker), committed(broker, 1)) == ([b"a"], [b"before"])


def test_a_marker_of_a_commit_that_the_start_cannot_write_is_not_turned_into_an_abort(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    broker.hold_jobs = True
    Waiting(broker, producer.end_request(commit=True), 5)
    broker.hold_jobs = False
    failing_under(files, "orders-1", times=1)
    broker.kill()
    broker.tick(1)
    assert known(broker).state is State.PREPARE_COMMIT
    assert committed(broker) == [b"a"]
    assert committed(broker, 1) == [], "consumers wait"
    broker.tick(1_000)
    assert known(broker).state is State.COMPLETE_COMMIT
    assert committed(broker, 1) == [b"a"]
    assert broker.broker.transactions.ended["orphaned"] == 0
    check_replay(broker)
    broker.close()


def test_an_unknown_transaction_that_cannot_be_aborted_is_tried_again(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    append_open(broker, 77)
    heal = failing_under(files, "orders-0")
    broker.kill()
    for _ in range(3):
        broker.tick(1_000)
        assert last_stable_offset(broker) == 1
    other = TransactionalProducer(broker)
    assert other.produce(b"a", partition=1).error_code == 0, "others go on meanwhile"
    heal()
    broker.tick(1_000)
    assert last_stable_offset(broker) == 3
    assert known(broker).state is State.ONGOING
    assert other.commit().error_code == 0
    assert committed(broker, 1) == [b"a"]
    assert broker.broker.transactions.ended["orphaned"] == 1
    broker.close()


# Until the log is read


def loading(tmp_path: Path, spoil: Callable[[Path], None] = lambda path: None) -> tuple[LocalBroker, Any]:
    """A broker that has an open transaction, and has not read its transaction log."""
    broker = LocalBroker(tmp_path)
    broker.create_topic()
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    broker._jobs.clear()
    broker.directory.abandon()
    spoil(tmp_path)
    broker.hold_jobs = True
    run_jobs, broker.run_jobs = broker.run_jobs, lambda: None  # type: ignore[method-assign]
    broker.open()
    broker.run_jobs = run_jobs  # type: ignore[method-assign]
    return broker, producer


def codes(broker: LocalBroker, producer: TransactionalProducer) -> list[int]:
    """The error codes of all requests about transactions."""
    marker = WritableTxnMarker(
        producer_id=producer.identity[0],
        producer_epoch=1,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
    )
    marked = broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics[0].partitions[0]
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["copier"]), 0).transaction_states[0]
    return [
        broker.ask(producer.init_request(), 5).error_code,
        producer.add(0),
        broker.ask(producer.end_request(commit=True), 5).error_code,
        marked.error_code,
        described.error_code,
        broker.ask(ListTransactionsRequest(), 2).error_code,
    ]


def test_the_first_producer_of_all_waits_for_nothing(tmp_path: Path) -> None:
    """Nothing was open when the broker started, or the coordinator would have been loaded."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=STEPS_AT_ONCE + 5)
        for partition in range(STEPS_AT_ONCE + 5):
            broker.produce(b"a", partition=partition)
        broker.hold_jobs = True
        beginning = Waiting(broker, TransactionalProducer(broker, begins=False).init_request(), 5)
        broker.run_flushes()
        assert beginning.answer.error_code == 0
        broker.hold_jobs = False


def test_requests_are_refused_until_the_log_is_read(tmp_path: Path) -> None:
    broker, producer = loading(tmp_path)
    assert set(codes(broker, producer)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    for version in (11, 12):
        answer = producer.produce(b"b", version=version, base_sequence=1)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "which producers retry"
    assert broker.log().end_offset == 1
    broker.hold_jobs = False
    broker.run_jobs()
    assert producer.produce(b"b", base_sequence=1).error_code == 0
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"a", b"b"]
    broker.close()


def test_a_log_that_cannot_be_read_makes_transactions_unavailable_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = LocalBroker(tmp_path)
    broker.create_topic()
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    topic = broker.broker.topic("__transaction_state")
    assert topic is not None
    log = topic.touched[0].log
    assert log is not None
    log.append(a_batch(b"nonsense"), NOW_MS)
    broker.kill()
    broker.tick()
    assert set(codes(broker, producer)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert producer.produce(b"b", version=12).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.produce(b"plain").error_code == 0
    assert last_stable_offset(broker) == 0, "nothing is aborted that might be committed"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [line for line in errors if "cannot read the transaction log" in line and "record" in line]
    broker.close()


# The disk


def test_a_full_disk_refuses_batches_and_lets_transactions_end(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    files.space_left = Space(1, 1 << 40)
    broker.tick()
    assert producer.produce(b"b", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"a"]
    broker.close()


def test_a_decision_that_cannot_be_written_is_refused_and_may_be_asked_for_again(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker, timeout_ms=10_000)
    producer.produce(b"a")
    heal = failing_under(files, "__transaction_state-0")
    assert producer.commit().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.add(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (known(broker).state, known(broker).epoch) == (State.ONGOING, 0)
    heal()
    assert producer.commit().error_code == 0
    assert committed(broker) == [b"a"]
    check_replay(broker)
    broker.close()


def test_a_timeout_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    TransactionalProducer(broker, timeout_ms=10_000).produce(b"a")
    heal = failing_under(files, "__transaction_state-0")
    broker.tick(20_000)
    assert known(broker).state is State.ONGOING
    heal()
    broker.tick(1_000)
    assert known(broker).state is State.COMPLETE_ABORT
    assert last_stable_offset(broker) == 2
    broker.close()


def test_a_completion_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    while broker.log().end_offset < 2:
        assert run_a_job(broker)
    heal = failing_under(files, "__transaction_state-0")
    broker.hold_jobs = False
    broker.run_jobs()
    assert (ending.is_answered, known(broker).state) == (False, State.PREPARE_COMMIT)
    heal()
    broker.tick(1_000)
    assert ending.answer.error_code == 0
    assert broker.log().end_offset == 2, "the marker is not written again"
    check_replay(broker)
    broker.close()


def test_an_end_waits_for_a_partition_that_takes_no_marker_and_is_answered_as_decided(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    heal = failing_under(files, "orders-1")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    broker.hold_jobs = False
    for _ in range(3):
        broker.tick(1_000)
    assert (committed(broker), committed(broker, 1)) == ([b"a"], [])
    assert not ending.is_answered
    assert broker.log().end_offset == 2, "the marker that is on disk is not written again"
    ending.expire()
    assert (ending.answer.error_code, ending.answer.producer_epoch) == (0, 1)
    waiting = Waiting(broker, producer.init_request(), 5)
    assert not waiting.is_answered
    heal()
    broker.tick(1_000)
    assert waiting.answer.error_code == 0
    assert committed(broker, 1) == [b"a"]
    check_replay(broker)
    broker.close()


def test_an_end_that_has_waited_for_the_one_before_is_answered_as_decided_too(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    broker.produce(b"plain", partition=1)
    producer = TransactionalProducer(broker, version=0)
    producer.produce(b"a")
    broker.hold_jobs = True
    first = Waiting(broker, producer.end_request(commit=True), 4)
    adding = Waiting(broker, producer.add_request(1), 3)
    second = Waiting(broker, producer.end_request(commit=True), 4)
    broker.hold_jobs = False
    heal = failing_under(files, "orders-1")
    broker.run_jobs()
    assert (first.is_answered, adding.is_answered, second.is_answered) == (True, True, False)
    second.expire()
    assert second.answer.error_code == 0
    heal()
    broker.tick(1_000)
    assert known(broker).state is State.COMPLETE_COMMIT
    broker.close()


def test_a_partition_that_is_offline_gets_its_marker_when_it_is_back(tmp_path: Path) -> None:
    broker, files = faulty(tmp_path)
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    failing_under(files, "orders-1", EIO)
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    broker.hold_jobs = False
    broker.tick(1_000)
    assert broker.log(index=1).offline is not None
    assert committed(broker) == [b"a"]
    assert not ending.is_answered
    broker._files = OperatingSystemFiles()
    broker.kill()
    broker.tick(1)
    assert (committed(broker), committed(broker, 1)) == ([b"a"], [b"a"])
    assert broker.log(index=1).producers.open_transactions() == []
    assert known(broker).state is State.COMPLETE_COMMIT
    broker.close()
