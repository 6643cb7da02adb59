"""WriteTxnMarkers: an operator ends a transaction, as `kafka-transactions.sh abort` does."""

from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, a_batch
from transactions import TransactionalProducer, Waiting, committed, known, last_stable_offset, run_a_job

from tailrace.broker.transactions.state import State
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tailrace.testing.faulty_files import FaultyFiles

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        yield broker


def request(
    producer_id: int, epoch: int, *partitions: int, commit: bool = False, topic: str = "orders", **fields: Any
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions or (0,)))],
        **{"coordinator_epoch": 0, **fields},
    )
    return WriteTxnMarkersRequest(markers=[marker])


def codes(response: Any) -> list[int]:
    (marker,) = response.markers
    return [one.error_code for topic in marker.topics for one in topic.partitions]


def open_in_log(broker: LocalBroker, producer_id: int = 77, epoch: int = 0) -> None:
    """A transaction that the coordinator does not know."""
    broker.produce(b"before")
    data = a_batch(b"open", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    broker.log().append(data, NOW_MS)


@both_versions
def test_a_transaction_that_the_coordinator_has_open_is_aborted_as_a_whole(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    assert codes(broker.ask(request(*producer.identity), version)) == [0]
    assert known(broker).state is State.COMPLETE_ABORT
    assert [last_stable_offset(broker, partition) for partition in (0, 1)] == [2, 2]
    assert [committed(broker, partition) for partition in (0, 1)] == [[], []]
    assert producer.produce(b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.broker.transactions.ended["fenced"] == 1


def test_all_partitions_of_one_transaction_in_one_request(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    for partition in (0, 1):
        producer.produce(b"a", partition=partition)
    assert codes(broker.ask(request(*producer.identity, 0, 1), 1)) == [0, 0]
    assert [broker.log(index=index).end_offset for index in (0, 1)] == [2, 2], "one marker each"


@both_versions
def test_a_transaction_that_the_coordinator_has_open_is_not_committed_in_one_partition(
    broker: LocalBroker, version: int
) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    assert codes(broker.ask(request(*producer.identity, commit=True), version)) == [ErrorCode.INVALID_TXN_STATE]
    assert known(broker).state is State.ONGOING
    assert producer.commit().error_code == 0


def test_a_transaction_that_is_being_committed_is_not_aborted(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=True), 5)
    assert codes(broker.ask(request(*producer.identity), 1)) == [ErrorCode.INVALID_TXN_STATE]
    broker.run_jobs()
    assert ending.answer.error_code == 0
    assert committed(broker) == [b"a"]


def test_a_transaction_that_is_being_aborted_is_waited_for(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(b"a")
    broker.hold_jobs = True
    ending = Waiting(broker, producer.end_request(commit=False), 5)
    waiting = Waiting(broker, request(*producer.identity), 1)
    while not waiting.is_answered:
        assert broker.log().high_watermark < 2
        assert run_a_job(broker)
    assert (codes(waiting.answer), ending.answer.error_code) == ([0], 0)
    assert broker.log().end_offset == 2


@both_versions
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_that_is_open_in_a_partition_alone_gets_the_marker(
    broker: LocalBroker, version: int, commit: bool
) -> None:
    open_in_log(broker)
    assert last_stable_offset(broker) == 1
    wanted = request(77, 1, commit=commit, transaction_version=2 if version == 2 else 0)
    assert codes(broker.ask(wanted, version)) == [0]
    assert last_stable_offset(broker) == 3
    assert committed(broker) == ([b"before", b"open"] if commit else [b"before"])


def test_the_response_leaves_when_the_marker_is_on_disk(broker: LocalBroker) -> None:
    open_in_log(broker)
    broker.hold_jobs = True
    waiting = Waiting(broker, request(77, 0), 1)
    assert not waiting.is_answered
    broker.run_flushes()
    assert codes(waiting.answer) == [0]
    assert last_stable_offset(broker) == 3


def test_a_marker_of_the_second_version_has_a_higher_epoch_or_is_repeated(broker: LocalBroker) -> None:
    open_in_log(broker, epoch=3)
    second: dict[str, Any] = {"transaction_version": 2}
    for epoch in (2, 3):
        assert codes(broker.ask(request(77, epoch, **second), 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(broker.ask(request(77, 4, **second), 2)) == [0]
    assert codes(broker.ask(request(77, 4, **second), 2)) == [0], "repeated"
    assert codes(broker.ask(request(77, 3, **second), 2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert last_stable_offset(broker) == broker.log().end_offset


@both_versions
def test_a_marker_of_an_epoch_before_is_refused(broker: LocalBroker, version: int) -> None:
    open_in_log(broker, epoch=3)
    assert codes(broker.ask(request(77, 2), version)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_coordinator_of_an_earlier_epoch_is_fenced(broker: LocalBroker) -> None:
    open_in_log(broker)
    assert codes(broker.ask(request(77, 0, coordinator_epoch=5), 1)) == [0]
    answer = broker.ask(request(77, 0, coordinator_epoch=4), 1)
    assert codes(answer) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert codes(broker.ask(request(77, 0, coordinator_epoch=5), 1)) == [0]


def test_partitions_that_do_not_exist_or_have_no_records(broker: LocalBroker) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.ask(request(77, 0, 0, 7), 1)) == [0, unknown]
    assert codes(broker.ask(request(77, 0, topic="nothing"), 1)) == [unknown]
    assert broker.partition().log is None


def test_an_offline_partition_is_told(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        open_in_log(broker)
        files.fail("write_at", EIO, name=".log")
        assert codes(broker.ask(request(77, 0), 1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        broker.kill()
