"""Batches of idempotent producers that the broker refuses for now: those in flight behind them do not overtake them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, a_batch, only_partition, produce_request, resolved

from tailrace.broker.core.api import Silence
from tailrace.broker.produce import recompression as recompressing
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.state.refused_batches import REMEMBERED_MS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.compression import Codec
from tailrace.testing.faulty_files import FaultyFiles

Fault = Callable[[LocalBroker, FaultyFiles], AbstractContextManager[Any]]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(OperatingSystemFiles())


@pytest.fixture
def broker(tmp_path: Path, files: FaultyFiles) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(partitions=2)
        yield broker


def idempotent(sequence: int, epoch: int = 0, producer_id: int = 7) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}


def send(broker: LocalBroker, sequence: int, epoch: int = 0, **options: Any) -> tuple[int, int]:
    """The error and the offset that a batch of one record is answered with."""
    answer = broker.produce(b"%d" % sequence, **idempotent(sequence, epoch), **options)
    return int(answer.error_code), int(answer.base_offset)


def refuse(broker: LocalBroker, *sequences: int, epoch: int = 0) -> None:
    with low_disk(broker):
        for sequence in sequences:
            assert send(broker, sequence, epoch)[0] == ErrorCode.KAFKA_STORAGE_ERROR


# Every way to refuse a batch that its client sends again


@contextmanager
def low_disk(broker: LocalBroker, files: FaultyFiles | None = None) -> Iterator[None]:
    broker.tick(0)
    broker.broker.disk_reserve.is_low = True
    yield
    broker.broker.disk_reserve.is_low = False


@contextmanager
def full_disk(broker: LocalBroker, files: FaultyFiles) -> Iterator[None]:
    files.fail("write_at", ENOSPC, name=".log", forever=True)
    yield
    files.heal()


@contextmanager
def no_new_log(broker: LocalBroker, files: FaultyFiles) -> Iterator[None]:
    files.fail("make_directory", EIO, name="orders-0", forever=True)
    yield
    files.heal()


@contextmanager
def too_many_new_logs(broker: LocalBroker, files: FaultyFiles) -> Iterator[None]:
    handle = broker.broker.handle

    def handle_without_allowance(*arguments: Any) -> Any:
        broker.broker.handle = handle  # type: ignore[method-assign]
        broker.broker._may_make = 0
        return arguments[0].handle(*arguments[1:], broker.broker)

    broker.broker.handle = handle_without_allowance  # type: ignore[method-assign,assignment]
    yield


@contextmanager
def topic_being_deleted(broker: LocalBroker, files: FaultyFiles) -> Iterator[None]:
    broker.produce(b"of the topic before")
    broker.hold_jobs = True
    broker.delete_topic()
    create_without_jobs(broker)
    yield
    broker.hold_jobs = False
    broker.run_jobs()


def create_without_jobs(broker: LocalBroker) -> None:
    run_jobs, broker.run_jobs = broker.run_jobs, broker.run_flushes  # type: ignore[method-assign]
    broker.create_topic(partitions=2)
    broker.run_jobs = run_jobs  # type: ignore[method-assign]


@contextmanager
def unknown_topic(broker: LocalBroker, files: FaultyFiles) -> Iterator[None]:
    broker.delete_topic()
    yield
    broker.create_topic(partitions=2)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (low_disk, ErrorCode.KAFKA_STORAGE_ERROR),
        (full_disk, ErrorCode.KAFKA_STORAGE_ERROR),
        (no_new_log, ErrorCode.KAFKA_STORAGE_ERROR),
        (too_many_new_logs, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (topic_being_deleted, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (unknown_topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_the_next_batch_is_out_of_order_until_the_refused_one_has_come(
    broker: LocalBroker, files: FaultyFiles, fault: Fault, code: ErrorCode
) -> None:
    with fault(broker, files):
        assert send(broker, 0) == (code, -1)
    assert send(broker, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(broker, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert [send(broker, sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
    assert broker.values() == [b"0", b"1", b"2"]
    assert len(broker.broker.refused_batches) == 0


def test_a_batch_that_came_damaged_is_awaited(broker: LocalBroker) -> None:
    records = a_batch(b"0", now_ms=NOW_MS, **idempotent(0))
    records[-1] ^= 1
    assert only_partition(broker.ask(produce_request(records), 12)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert send(broker, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(broker, 0), send(broker, 1)] == [(0, 0), (0, 1)]


def test_a_batch_that_is_refused_while_others_are_recompressed_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="gzip")
        monkeypatch.setattr(recompressing, "WAITING_BYTES_MAX", 0)
        assert send(broker, 0)[0] == ErrorCode.REQUEST_TIMED_OUT
        monkeypatch.undo()
        assert send(broker, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [send(broker, 0), send(broker, 1)] == [(0, 0), (0, 1)]


def test_a_batch_that_the_disk_refuses_after_recompression_is_awaited(tmp_path: Path, files: FaultyFiles) -> None:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(compression_type="gzip")
        broker.hold_jobs = True
        answers = []
        for sequence, codec in ((0, Codec.NONE), (1, Codec.GZIP)):
            records = a_batch(b"%d" % sequence, codec=codec, **idempotent(sequence))
            answers.append(resolved(broker.begin(produce_request(records), 12)))
        files.fail("write_at", ENOSPC, name=".log")
        broker.run_jobs()
        broker.hold_jobs = False
        assert [only_partition(answer).error_code for (answer,) in answers] == [
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        assert [send(broker, 0), send(broker, 1)] == [(0, 0), (0, 1)]


def test_a_batch_without_acknowledgement_is_awaited_too(broker: LocalBroker) -> None:
    with low_disk(broker):
        request = produce_request(a_batch(b"0", **idempotent(0)), acks=0)
        answer = broker.begin(request, 12)
        assert isinstance(answer, Silence)
        assert answer.close
    assert send(broker, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, 0) == (0, 0)


def test_of_a_request_for_several_partitions_only_the_refused_one_is_affected(
    broker: LocalBroker, files: FaultyFiles
) -> None:
    files.fail("write_at", ENOSPC, name=".log")
    batches = [PartitionProduceData(index=index, records=a_batch(b"0", **idempotent(0))) for index in (0, 1)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=batches)]
    )
    answers = broker.ask(request, 12).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert send(broker, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, 1, partition=1) == (0, 1)
    assert send(broker, 0) == (0, 0)


# Several refusals, and what is not awaited


def test_of_several_refused_batches_the_first_is_due(broker: LocalBroker) -> None:
    refuse(broker, 0, 1, 2)
    assert [send(broker, sequence)[0] for sequence in (1, 2, 3)] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3
    assert [send(broker, sequence) for sequence in range(4)] == [(0, offset) for offset in range(4)]


def test_sequences_may_wrap_between_the_refused_batches(broker: LocalBroker) -> None:
    last = (1 << 31) - 1
    refuse(broker, last, 0)
    assert send(broker, 0)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(broker, sequence) for sequence in (last, 0, 1)] == [(0, 0), (0, 1), (0, 2)]


def test_a_refused_batch_of_a_known_producer_is_not_remembered(broker: LocalBroker) -> None:
    assert send(broker, 0) == (0, 0)
    refuse(broker, 1)
    assert len(broker.broker.refused_batches) == 0, "its log knows what is due"
    assert send(broker, 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, 1) == (0, 1)


def test_a_batch_refused_for_good_is_not_awaited(broker: LocalBroker) -> None:
    too_large = broker.produce(bytes(2 << 20), **idempotent(0))
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert send(broker, 1) == (0, 0)


def test_a_batch_without_a_producer_id_is_not_remembered(broker: LocalBroker) -> None:
    with low_disk(broker):
        assert broker.produce(b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(broker.broker.refused_batches) == 0


def test_names_that_no_topic_can_have_are_not_remembered(broker: LocalBroker) -> None:
    assert send(broker, 0, topic="x" * 30_000)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(broker, 0, topic="x" * 249)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(broker.broker.refused_batches) == 1


# How long it is awaited


def test_a_newer_epoch_may_begin_anew(broker: LocalBroker) -> None:
    refuse(broker, 0)
    assert send(broker, 0, epoch=1) == (0, 0)
    assert len(broker.broker.refused_batches) == 0


def test_after_ten_minutes_of_the_steady_clock_any_sequence_is_accepted(broker: LocalBroker) -> None:
    refuse(broker, 0)
    broker.jump(10 * REMEMBERED_MS)
    broker.tick(REMEMBERED_MS - 1)
    assert send(broker, 1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker.tick(1)
    assert send(broker, 1) == (0, 0)


@pytest.mark.parametrize("end", [LocalBroker.restart, LocalBroker.kill])
def test_a_restart_forgets_refused_batches(broker: LocalBroker, end: Callable[[LocalBroker], None]) -> None:
    refuse(broker, 0)
    end(broker)
    assert send(broker, 1) == (0, 0)


def test_a_batch_that_was_appended_is_not_awaited_in_the_next_topic_of_that_name(broker: LocalBroker) -> None:
    refuse(broker, 0)
    assert send(broker, 0) == (0, 0)
    broker.delete_topic()
    broker.create_topic()
    assert send(broker, 9) == (0, 0)
