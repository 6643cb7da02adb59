"""A Fetch that waits: for more, for the metadata, or for a disk; and what it leaves behind when nobody wants it."""

import random
import threading
from collections.abc import Callable
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from brokers import (
    NOW_MS,
    LocalBroker,
    a_batch,
    fetch_request,
    from_offset,
    only_partition,
    produce_request,
    resolved,
    values_of,
)

from tailrace.broker.fetch import reads as fetching
from tailrace.broker.metadata.topic_changes import create_topic, delete_topic
from tailrace.log.disk.interface import Data, File
from tailrace.log.disk.os_files import OperatingSystemFile, OperatingSystemFiles
from tailrace.log.layout.errors import StorageError
from tailrace.log.log import Log
from tailrace.log.reader import ReadableLog
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


class ColdFiles(OperatingSystemFiles):
    """Files of which nothing is ever in the page cache: every look has to go through a thread."""

    is_cold = True

    def open(self, path: str, *, create: bool = False) -> OperatingSystemFile:
        file = super().open(path, create=create)
        return _Cold(file, self)  # type: ignore[return-value]

    @property
    def pinned(self) -> list[str]:
        """The files that somebody holds open."""
        return [file.path for file in self._descriptors._files if file._pins]


class _Cold:
    def __init__(self, file: OperatingSystemFile, files: ColdFiles) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_cached_at(self, position: int, size: int) -> Data | None:
        return None if self._files.is_cold else self._file.read_cached_at(position, size)


_: type[File] = _Cold  # type: ignore[assignment]


def parked(broker: LocalBroker, *, offset: int = 0, version: int = 12, **fields: Any) -> tuple[Any, list[Any]]:
    waiting = broker.begin(fetch_request(from_offset(offset), **fields), version)
    answers = resolved(waiting)
    assert not answers
    return waiting, answers


def read(broker: LocalBroker, answers: list[Any], version: int = 12) -> Any:
    """The one answer that came, after its way over the wire; its files are let go of."""
    (answer,) = answers
    return only_partition(broker.decode(answer, FetchRequest, version))


def watchers(broker: LocalBroker, topic: str = "orders") -> int:
    return len(broker.partition(topic).waiting_fetches)


@pytest.fixture
def files() -> ColdFiles:
    return ColdFiles()


# Parked


def test_a_reader_at_the_end_is_told_of_the_next_append_once_it_is_on_disk(tmp_path: Path) -> None:
    """Pitfall 17: and not before."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"first")
        waiting, answers = parked(broker, offset=1, max_wait_ms=700)
        assert waiting.wait_ms == 700
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"next"), acks=1), 9)
        assert not answers, "what is not on disk is nobody's to read"
        broker.run_jobs()
        assert values_of(read(broker, answers)) == [b"next"], "an append that somebody waits for is flushed at once"
        assert watchers(broker) == 0


def test_a_reader_of_a_partition_without_a_log_is_told_of_its_first_append(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        _, answers = parked(broker)
        broker.produce(b"a", acks=1)
        assert values_of(read(broker, answers)) == [b"a"]


def test_a_reader_that_parks_over_unflushed_bytes_asks_for_a_flush(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a", acks=1)
        assert broker.log().high_watermark == 0, "nobody wanted it yet"
        _, answers = parked(broker)
        broker.run_jobs()
        assert values_of(read(broker, answers)) == [b"a"]


def test_it_waits_for_min_bytes_of_all_partitions_together(tmp_path: Path) -> None:
    """Pitfall 17."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        size = len(a_batch(b"x" * 100))
        wanted = [from_offset(0, number) for number in range(3)]
        answers = resolved(broker.begin(fetch_request(*wanted, min_bytes=3 * size), 12))
        for number in (2, 0):
            broker.produce(b"x" * 100, partition=number)
            assert not answers
        broker.produce(b"x" * 100, partition=2)
        found = broker.decode(answers[0], FetchRequest, 12).responses[0].partitions
        assert [len(values_of(one)) for one in found] == [1, 0, 2]


def test_an_error_is_answered_at_once(tmp_path: Path) -> None:
    """Pitfall 17."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        answers = resolved(broker.begin(fetch_request(from_offset(0), from_offset(9, 7)), 12))
        assert [one.error_code for one in answers[0].responses[0].partitions] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert watchers(broker) == 0


@pytest.mark.parametrize("fields", [{"max_wait_ms": 0}, {"max_wait_ms": -1}, {"min_bytes": 0}, {"min_bytes": -1}])
def test_who_does_not_want_to_wait_does_not(tmp_path: Path, fields: dict[str, Any]) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        assert resolved(broker.begin(fetch_request(from_offset(0), **fields), 12))


@pytest.mark.parametrize("how", ["expire", "hurry"])
def test_when_its_time_is_up_it_answers_with_what_there_is(tmp_path: Path, how: str) -> None:
    """Pitfalls 4 and 17."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        waiting, answers = parked(broker, min_bytes=10_000)
        getattr(waiting, how)()
        assert values_of(read(broker, answers)) == [b"a"]
        assert watchers(broker) == 0
        waiting.expire()
        broker.produce(b"b")
        assert len(answers) == 1, "it is resolved once"


def test_all_who_wait_are_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        waiting = [parked(broker) for _ in range(5)]
        waiting[2][0].abandon()
        broker.produce(b"a")
        for number, (_, answers) in enumerate(waiting):
            if number == 2:
                assert not answers
            else:
                assert values_of(read(broker, answers)) == [b"a"]
        assert watchers(broker) == 0


def test_one_that_is_abandoned_because_another_was_answered_is_left_alone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        all_waiting = [parked(broker)[0] for _ in range(3)]
        answered: list[int] = []

        def tell(number: int) -> Callable[[object], None]:
            def told(answer: Any) -> None:
                answered.append(number)
                fetching.release_records(answer)
                for other in all_waiting:
                    other.abandon()

            return told

        for number, waiting in enumerate(all_waiting):
            waiting.when_resolved(tell(number))
        broker.produce(b"a")
        assert len(answered) == 1


def test_a_reader_of_a_topic_that_is_deleted_is_told(tmp_path: Path) -> None:
    """Pitfall 32: deleting a topic wakes fetches parked on it."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        broker.produce(b"a")
        _, by_name = parked(broker, offset=1)
        _, by_id = parked(broker, offset=1, topic=topic_id, version=13)
        partition = broker.partition()
        broker.delete_topic()
        assert read(broker, by_name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert read(broker, by_id, 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert not partition.waiting_fetches


def test_so_is_one_of_a_topic_that_never_had_a_log(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        _, answers = parked(broker)
        broker.delete_topic()
        assert read(broker, answers).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_reader_by_name_finds_the_topic_that_was_created_again(tmp_path: Path) -> None:
    """Pitfall 11: who reads by name cannot tell the two apart, and must not wait at the old one for ever."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        _, answers = parked(broker)
        old = broker.broker.metadata.topics["orders"]
        records = [delete_topic(old)]
        broker.broker.metadata_log.write(records, NOW_MS)
        changes = create_topic(broker.broker.metadata, "orders", 1, {}, broker.broker.random_bytes)
        broker.broker.metadata_log.write(changes, NOW_MS)
        broker.run_jobs()
        broker.broker.remove_logs([old], broker.now_ms)
        assert not answers
        broker.produce(b"new")
        assert values_of(read(broker, answers)) == [b"new"]


def test_an_answer_that_rests_on_metadata_waits_until_that_is_on_disk(tmp_path: Path) -> None:
    """Design 4: also where the change came while it waited."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        waiting, answers = parked(broker)
        broker.hold_jobs = True
        topic = broker.broker.metadata.topics["orders"]
        broker.broker.metadata_log.write([delete_topic(topic)], NOW_MS)
        waiting.expire()
        assert not answers, "a power cut could bring the topic back"
        broker.run_flushes()
        assert read(broker, answers).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.broker.remove_logs([topic], broker.now_ms)


def test_one_that_is_abandoned_while_it_waits_for_the_metadata_holds_nothing(tmp_path: Path, files: ColdFiles) -> None:
    files.is_cold = False
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        metadata = broker.begin(MetadataRequest(topics=[MetadataRequestTopic(name="another")]), 9)
        waiting = broker.begin(fetch_request(from_offset(0)), 12)
        answers = resolved(waiting)
        assert not answers
        waiting.abandon()
        broker.run_jobs()
        assert resolved(metadata)
        assert not answers
        assert files.pinned == []


# Cold


def test_a_cold_read_goes_through_a_thread_and_delivers_the_same_bytes(tmp_path: Path, files: ColdFiles) -> None:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(partitions=2)
        for number in range(20):
            broker.produce(b"%d" % number, partition=number % 2)
        files.is_cold = False
        warm = broker.fetch(from_offset(3, 0), from_offset(0, 1)).responses[0].partitions
        files.is_cold = True
        broker.hold_jobs = True
        answers = resolved(broker.begin(fetch_request(from_offset(3, 0), from_offset(0, 1)), 12))
        assert not answers
        broker.run_jobs()
        cold = broker.decode(answers[0], FetchRequest, 12).responses[0].partitions
        assert [bytes(one.records) for one in cold] == [bytes(one.records) for one in warm]
        assert files.pinned == []


def test_what_is_flushed_while_a_thread_looks_is_not_missed(tmp_path: Path, files: ColdFiles) -> None:
    """Pitfall 17: it looked before, and parks after; nobody would wake it."""
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a" * 100)
        broker.hold_jobs = True
        answers = resolved(broker.begin(fetch_request(from_offset(0), min_bytes=250), 12))
        job, finish = broker._jobs.popleft()
        job.run()
        broker.begin(produce_request(a_batch(b"b" * 100)), 9)
        broker.run_flushes()
        finish()
        broker.run_jobs()
        assert len(values_of(read(broker, answers))) == 2
        assert files.pinned == []


def test_its_time_may_be_up_while_a_thread_looks(tmp_path: Path, files: ColdFiles) -> None:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        waiting = broker.begin(fetch_request(from_offset(0), min_bytes=5000), 12)
        answers = resolved(waiting)
        waiting.expire()
        waiting.hurry()
        assert not answers
        broker.run_jobs()
        assert values_of(read(broker, answers)) == [b"a"]


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_one_that_is_abandoned_holds_nothing(tmp_path: Path, files: ColdFiles, when: str) -> None:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        waiting = broker.begin(fetch_request(from_offset(0)), 12)
        answers = resolved(waiting)
        job, finish = broker._jobs.popleft()
        if when == "before":
            waiting.abandon()
            job.run()
        elif when == "during":
            thread = threading.Thread(target=job.run)
            thread.start()
            waiting.abandon()
            thread.join()
        else:
            job.run()
            assert files.pinned
            waiting.abandon()
        finish()
        assert not answers
        assert files.pinned == []
        assert watchers(broker) == 0


def test_one_that_is_parked_and_abandoned_is_forgotten(tmp_path: Path, files: ColdFiles) -> None:
    files.is_cold = False
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        waiting, answers = parked(broker, min_bytes=5000)
        assert files.pinned == [], "nothing is held while it waits"
        waiting.abandon()
        assert watchers(broker) == 0
        waiting.expire()
        broker.produce(b"b" * 6000)
        assert not answers
        assert files.pinned == []


def test_a_topic_deleted_while_a_thread_looks_is_unknown(tmp_path: Path, files: ColdFiles) -> None:
    """Not out of range: a client would begin anew somewhere else."""
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a", b"b")
        broker.hold_jobs = True
        answers = resolved(broker.begin(fetch_request(from_offset(1)), 12))
        assert len(broker._jobs) == 1
        broker.delete_topic()
        broker.run_jobs()
        assert read(broker, answers).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert files.pinned == []


def test_a_topic_deleted_after_a_thread_has_looked_is_still_delivered(tmp_path: Path, files: ColdFiles) -> None:
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        answers = resolved(broker.begin(fetch_request(from_offset(0)), 12))
        job, finish = broker._jobs.popleft()
        job.run()
        broker.delete_topic()
        broker.run_flushes()  # of the loss ledger
        finish()
        broker.run_jobs()
        assert values_of(read(broker, answers)) == [b"a"], "what is pinned can be read to its end"
        assert files.pinned == []


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_look_that_fails_unforeseen_is_answered_all_the_same(
    tmp_path: Path, files: ColdFiles, is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.is_cold = is_cold
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(partitions=2)
        for number in (0, 1):
            broker.produce(b"a", partition=number)
        waiting = broker.begin(fetch_request(from_offset(0), from_offset(0, 1)), 12) if is_cold else None
        right = ReadableLog.read

        def wrong(log: Log, *arguments: Any, **options: Any) -> Any:
            if log is broker.log(index=1):
                raise ZeroDivisionError
            return right(log, *arguments, **options)

        monkeypatch.setattr(ReadableLog, "read", wrong)
        waiting = waiting or broker.begin(fetch_request(from_offset(0), from_offset(0, 1)), 12)
        answers = resolved(waiting)
        broker.run_jobs()
        assert answers[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert files.pinned == [], "what the first partition had is let go of"
        monkeypatch.undo()
        assert broker.values() == [b"a"]


def test_aborted_transactions_that_cannot_be_read_let_go_of_the_records(
    tmp_path: Path, files: ColdFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.is_cold = False
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")

        def wrong(*_: Any, **__: Any) -> Any:
            raise StorageError("cannot be read", OSError(EIO, "broken"))

        monkeypatch.setattr(Log, "aborted_transactions", wrong)
        answer = only_partition(broker.fetch(from_offset(0), isolation_level=1))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(answer) == [], "no records without them"
        assert files.pinned == []


def test_damage_is_told_and_never_skipped(tmp_path: Path) -> None:
    """Design 9."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for number in range(3):
            broker.produce(b"%d" % number * 50)
        broker.restart()
        path = tmp_path / "orders-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        assert broker.values() == [b"0" * 50], "up to the damage"
        answer = only_partition(broker.fetch(from_offset(1)))
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        assert broker.values(offset=2) == [b"2" * 50]


class AnyOrder:
    """Fetches while everything else happens: each step is one of many, by chance."""

    def __init__(self, broker: LocalBroker, files: ColdFiles, seed: int) -> None:
        self.broker = broker
        self.waiting: list[tuple[Any, list[Any]]] = []
        self._files = files
        self._chance = random.Random(seed)
        self._topic_ids: list[bytes] = []

    def step(self) -> None:
        steps = (self.fetch, self.produce, self.produce, self.flush, self.run_one, self.run_one, self.end_one)
        self._chance.choice((*steps, self.delete, self.warm))()

    def topic_id(self) -> bytes:
        topic = self.broker.broker.metadata.topics.get("orders")
        if topic is None:
            self._topic_ids.append(self.broker.create_topic(partitions=2))
        return self._topic_ids[-1]

    def fetch(self) -> None:
        self.topic_id()
        request = fetch_request(
            *(from_offset(0, number) for number in range(2)),
            topic=self._chance.choice(self._topic_ids),
            min_bytes=self._chance.choice((1, 400)),
            isolation_level=self._chance.choice((0, 1)),
        )
        later = self.broker.begin(request, 13)
        self.waiting.append((later, resolved(later)))

    def produce(self) -> None:
        request = produce_request(
            a_batch(b"x"), self.topic_id(), self._chance.randrange(2), self._chance.choice((-1, 1))
        )
        self.broker.begin(request, 13)

    def flush(self) -> None:
        if (job := self.broker.broker.flushes.next_job()) is not None:
            job.run()
            self.broker.broker.flushed(job)

    def run_one(self) -> None:
        jobs = self.broker._jobs
        if jobs:
            jobs.rotate(self._chance.randrange(len(jobs)))
            job, finish = jobs.popleft()
            job.run()
            for _ in range(self._chance.randrange(3)):
                self._chance.choice((self.produce, self.flush, self.end_one, self.fetch))()
            finish()

    def end_one(self) -> None:
        pending = [later for later, answers in self.waiting if not answers]
        if pending:
            getattr(self._chance.choice(pending), self._chance.choice(("expire", "hurry", "abandon")))()

    def delete(self) -> None:
        is_there = "orders" in self.broker.broker.metadata.topics
        if is_there and not self.broker.directory.removing and self._chance.random() < 0.2:
            self.broker.delete_topic()

    def warm(self) -> None:
        self._files.is_cold = not self._files.is_cold

    def end(self) -> None:
        """Lets the time of all requests run out, and sends the responses."""
        self.broker.hold_jobs = False
        self.broker.run_jobs()
        for later, _ in self.waiting:
            later.expire()
        self.broker.run_jobs()
        for _, answers in self.waiting:
            for answer in answers:
                fetching.release_records(answer)


@pytest.mark.parametrize("seed", range(6))
def test_in_whatever_order_each_is_answered_once_and_nothing_is_held(
    tmp_path: Path, files: ColdFiles, seed: int
) -> None:
    """Appends, flushes, threads, deletions, timeouts and lost connections."""
    with LocalBroker(tmp_path, files=files, seed=seed) as broker:
        broker.hold_jobs = True
        any_order = AnyOrder(broker, files, seed)
        for _ in range(150):
            any_order.step()
        any_order.end()
        for later, answers in any_order.waiting:
            assert len(answers) == 1 or later._is_over, "told once, or gone before"
        assert files.pinned == []
        partitions = [one for topic in broker.broker.metadata.topics.values() for one in topic.touched]
        assert not any(partition.waiting_fetches for partition in partitions)
