"""Logs that are removed or set aside: gone at once for those who write, not for those who are reading, and for good."""

import sys
import threading
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.directory.removal import RemoveJob
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, decode_offsets
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import JobUnderWay, LogClosed, LogError, LogRemoved, LogUnavailable, StorageError
from tailrace.log.layout.names import TopicPartition, is_put_away
from tailrace.log.log import Log
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000
OTHER = TopicPartition("other", 3)
TOPIC_ID = bytes(range(16))
HEX = TOPIC_ID.hex()


class Setup:
    """Two logs on a disk in memory, of which one is going to be removed."""

    def __init__(self) -> None:
        self.files = memory_files()
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.create(ORDERS, topic_id=TOPIC_ID)
        self.other = self.directory.create(OTHER)
        for log in (self.log, self.other):
            write_log(log, 30)
        self.directory.checkpoint(NOW)

    def remove(self) -> None:
        remove(self.directory, ORDERS)

    @property
    def directories(self) -> list[str]:
        return self.files.directories_in(DATA)

    def reopened(self) -> DataDirectory:
        return DataDirectory(RecordingFiles(self.files.disk.copy()), DATA, SMALL)

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        return decode_offsets(bytes(self.files.disk.file(f"{DATA}/{name}")))


@pytest.fixture
def setup() -> Setup:
    return Setup()


def remove(directory: DataDirectory, *partitions: TopicPartition) -> None:
    job: Any = directory.begin_remove(partitions)
    while job is not None:
        job.run()
        job = job.finish()


# What is left


def test_a_removed_log_is_gone_from_the_directory_and_from_the_disk(setup: Setup) -> None:
    setup.remove()
    assert list(setup.directory.logs) == [OTHER]
    assert setup.directories == [str(OTHER)]
    assert not [path for path in setup.files.disk.names if path.startswith(PARTITION)]
    assert list(setup.reopened().logs) == [OTHER]


def test_nothing_names_a_removed_log_any_more(setup: Setup) -> None:
    setup.remove()
    for name in (RECOVERY_POINTS, START_OFFSETS):
        assert list(setup.offsets(name)) == [OTHER]
    assert not setup.directory.leftovers
    assert not setup.directory.removing
    assert not setup.directory.put_away
    assert ORDERS not in setup.directory.reports


def test_the_directory_has_kafka_s_name_for_it_until_its_files_are_deleted(setup: Setup) -> None:
    job = setup.directory.begin_remove([ORDERS])
    assert setup.directories == [str(ORDERS), str(OTHER)], "nothing waits for a disk yet"
    job.run()
    assert setup.directories == [f"orders-0.{HEX}-delete", str(OTHER)]
    deletion = job.finish()
    assert deletion is not None
    deletion.run()
    deletion.finish()
    assert setup.directories == [str(OTHER)]


def test_many_logs_are_removed_by_one_job(setup: Setup) -> None:
    partitions = [TopicPartition("many", number) for number in range(20)]
    for partition in partitions:
        setup.directory.create(partition, topic_id=TOPIC_ID).flush()
    remove(setup.directory, *partitions, *partitions)
    assert set(setup.directory.logs) == {ORDERS, OTHER}
    assert setup.directories == [str(ORDERS), str(OTHER)]


def test_a_topic_with_the_longest_name_is_removed(tmp_path: Path) -> None:
    """A file system takes 255 bytes for a name."""
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    partitions = [TopicPartition("x" * 249, number) for number in (0, 7, 12345)]
    for partition in partitions:
        directory.create(partition, topic_id=TOPIC_ID).flush()
    job = directory.begin_remove(partitions)
    job.run()
    names = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert len(names) == 3
    assert all(len(name) == 255 and is_put_away(name) for name in names)
    deletion = job.finish()
    assert deletion is not None
    deletion.run()
    deletion.finish()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    directory.close(NOW)


def test_what_a_crash_left_undeleted_is_deleted_by_the_next_process_and_never_opened(setup: Setup) -> None:
    setup.directory.begin_remove([ORDERS]).run()
    again = setup.reopened()
    assert list(again.logs) == [OTHER]
    assert again.leftovers == [f"orders-0.{HEX}-delete"]
    deletion = again.begin_delete_leftovers()
    assert deletion is not None
    assert again.begin_delete_leftovers() is None, "one job has them all"
    deletion.run()
    deletion.finish()
    assert again.files.directories_in(DATA) == [str(OTHER)]
    assert not again.leftovers


def test_logs_of_one_name_that_are_removed_again_and_again_get_different_names(setup: Setup) -> None:
    for _ in range(3):
        job = setup.directory.begin_remove([ORDERS])
        job.run()
        job.finish()  # and the deletion never runs
        setup.directory.create(ORDERS, topic_id=TOPIC_ID).flush()
    again = setup.reopened()
    assert len(again.leftovers) == 3
    remove(again, ORDERS)
    assert again.files.directories_in(DATA) == [str(OTHER)]


def test_what_only_looks_like_a_leftover_is_left_alone(tmp_path: Path) -> None:
    names = ["x-delete-0", f"a-0.{HEX}-delete-1", f"{HEX}-delete", "a-0.12-delete", f"a-0.{HEX}-future"]
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    for name in names:
        (tmp_path / name).mkdir()
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert set(directory.logs) == {TopicPartition("x-delete", 0), TopicPartition(f"a-0.{HEX}-delete", 1)}
    assert not directory.leftovers
    directory.close(NOW)
    assert all((tmp_path / name).is_dir() for name in names)


# Those who use it


def test_appends_flushes_and_reads_of_a_removed_log_are_refused(setup: Setup) -> None:
    log = setup.log
    log.append(batch_of(1), NOW)
    setup.directory.begin_remove([ORDERS])
    for use in (
        lambda: log.append(batch_of(1), NOW),
        log.begin_flush,
        lambda: log.begin_checkpoint(NOW),
        log.roll,
        lambda: log.read(0, 1000),
        lambda: log.find_time(0),
    ):
        with pytest.raises(LogRemoved, match="orders-0 was removed"):
            use()
    assert issubclass(LogRemoved, LogClosed)
    assert log.dirty_bytes == 0


def test_a_reader_that_has_a_piece_pinned_reads_it_to_its_end(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=4)
    directory = DataDirectory(files, str(tmp_path), SMALL)
    log = directory.create(ORDERS)
    write_log(log, 40)
    log.flush()
    expected = b"".join(stored_batches(log).values())
    slices, offset = [], 0
    while (piece := log.read(offset, 700)) is not None:
        slices.append(piece)
        offset = piece.next_offset
    assert len(slices) > 3
    remove(directory, ORDERS)
    assert not (tmp_path / str(ORDERS)).exists()
    directory.create(ORDERS).append(batch_of(20), NOW)
    assert b"".join(piece.read() for piece in slices) == expected
    for piece in slices:
        piece.release()
    directory.close(NOW)
    assert files.open_descriptors == 0


def test_a_reader_of_a_removed_log_never_gets_bytes_of_the_next_one(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(descriptor_limit=1), str(tmp_path), SMALL)
    old = directory.create(ORDERS)
    old.append(batch_of(2), NOW)
    old.flush()
    remove(directory, ORDERS)
    directory.create(ORDERS).append(batch_of(2), NOW)
    old.is_removed = False  # as for a reader that looked just before
    with pytest.raises(LogError, match="cannot read"):
        old.read(0, 1000)
    directory.close(NOW)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_switches")
def test_readers_and_flushes_in_threads_survive_the_removal_of_their_log(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path), SMALL)
    problems: list[Exception] = []

    def read(log: Log, expected: dict[int, bytes]) -> None:
        try:
            while True:
                assert stored_batches(log) == expected
        except LogRemoved:
            pass
        except (AssertionError, LogError, OSError, EOFError) as error:
            problems.append(error)

    for size in range(20, 45):
        log = directory.create(ORDERS)
        for _ in range(20):
            log.append(batch_of(2, size=size), NOW)
        log.flush()
        expected = stored_batches(log)
        log.append(batch_of(2), NOW)
        flush = log.begin_checkpoint(NOW)
        threads = [threading.Thread(target=read, args=(log, expected)), threading.Thread(target=flush.run)]
        for thread in threads:
            thread.start()
        remove(directory, ORDERS)
        for thread in threads:
            thread.join()
        flush.finish()
    assert problems == []
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    directory.close(NOW)


# Jobs that are under way


def test_jobs_of_a_removed_log_come_back_late_and_touch_nothing(setup: Setup) -> None:
    setup.log.append(batch_of(1), NOW)
    checkpoint = setup.log.begin_checkpoint(NOW)
    checkpoint.run()
    save = checkpoint.finish()
    setup.log.append(batch_of(1), NOW)
    flush = setup.log.begin_flush()
    assert flush is not None
    assert save is not None
    setup.remove()
    new = setup.directory.create(ORDERS)
    write_log(new, 5)
    calls = len(setup.files.calls)
    for job in (flush, save):
        job.run()
        assert job.finish() is None
    assert len(setup.files.calls) == calls
    assert setup.log.is_idle
    assert setup.log.offline is None


def test_a_checkpoint_of_a_removed_log_saves_nothing_and_is_over(setup: Setup) -> None:
    setup.log.append(batch_of(1), NOW)
    job = setup.log.begin_checkpoint(NOW)
    setup.remove()
    job.run()
    assert job.finish() is None
    assert setup.log.is_idle


def test_what_was_deleted_of_a_removed_log_is_not_deleted_from_the_next_one(setup: Setup) -> None:
    setup.log.delete_before(setup.log.high_watermark)
    assert setup.log.condemned[0].base_offset == 0
    offsets = setup.directory.begin_save_offsets()
    setup.remove()
    new = setup.directory.create(ORDERS)
    write_log(new, 30)
    new.flush()
    offsets.run()
    offsets.finish()
    assert stored_batches(setup.reopened().logs[ORDERS]) == stored_batches(new)
    assert setup.offsets(START_OFFSETS) == {OTHER: 0}, "the new one was made after those were noted"


def test_a_log_that_is_made_again_has_nothing_of_the_one_before(setup: Setup) -> None:
    setup.log.delete_before(20)
    setup.directory.checkpoint(NOW)
    setup.remove()
    new = setup.directory.create(ORDERS, topic_id=bytes(16), leader_epoch=4)
    new.append(batch_of(3), NOW)
    new.flush()
    log = setup.reopened().logs[ORDERS]
    assert (log.start_offset, log.end_offset, log.topic_id, log.damage) == (0, 3, bytes(16), [])
    assert log.producers.producers == {}


def test_a_name_is_free_once_the_removal_is_finished_and_before_files_are_deleted(setup: Setup) -> None:
    job = setup.directory.begin_remove([ORDERS])
    for _ in range(2):
        with pytest.raises(JobUnderWay, match="orders-0"):
            setup.directory.create(ORDERS)
        with pytest.raises(JobUnderWay, match="orders-0"):
            setup.directory.begin_remove([ORDERS])
        with pytest.raises(JobUnderWay):
            setup.directory.close(NOW)
        job.run()
    job.finish()
    setup.directory.create(ORDERS)


# Those who wait


class Waiting:
    """Who waits for a log in a queue, and what they were told."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.queue = FlushQueue()
        self.answers: list[LogError | None] = []

    def append(self, log: Log) -> None:
        end = log.append(batch_of(2), NOW).last_offset + 1
        self.queue.appended(log, NOW)
        self.queue.when_flushed(log, end, self.answers.append)

    def forget(self) -> RemoveJob:
        self.queue.forget(self.setup.log)
        return self.setup.directory.begin_remove([ORDERS])

    def assert_nothing_is_left_of(self, log: Log) -> None:
        queue = self.queue
        tables = [queue._wanted, queue._is_wanted, queue._waiters, queue._checkpoints, queue._dirty_since]
        assert not any(log in table for table in [*tables, queue._due_early])
        assert not any(save.log is log for save in queue._saves)


@pytest.fixture
def waiting(setup: Setup) -> Waiting:
    return Waiting(setup)


def test_those_who_wait_for_a_log_that_is_forgotten_are_told_and_no_others(waiting: Waiting) -> None:
    log, other = waiting.setup.log, waiting.setup.other
    waiting.append(log)
    waiting.append(log)
    waiting.append(other)
    waiting.queue.request_checkpoint(log)
    waiting.forget()
    assert [type(answer) for answer in waiting.answers] == [LogRemoved] * 2
    waiting.assert_nothing_is_left_of(log)
    waiting.queue.run_all()
    assert waiting.answers[2:] == [None]
    waiting.queue.tick(NOW + 10_000)
    assert waiting.queue.next_job() is None


def test_who_asks_for_a_log_that_was_removed_is_told_at_once(waiting: Waiting) -> None:
    end = waiting.setup.log.end_offset + 1
    waiting.forget()
    waiting.queue.when_flushed(waiting.setup.log, end, waiting.answers.append)
    assert [type(answer) for answer in waiting.answers] == [LogRemoved]
    waiting.assert_nothing_is_left_of(waiting.setup.log)


@pytest.mark.parametrize("is_run", [False, True])
def test_a_flush_that_was_out_when_its_log_was_forgotten_comes_back_without_a_word(
    waiting: Waiting, is_run: bool
) -> None:
    log = waiting.setup.log
    waiting.append(log)
    job = waiting.queue.next_job()
    assert job is not None
    if is_run:
        job.run()
    waiting.append(log)
    removal = waiting.forget()
    assert [type(answer) for answer in waiting.answers] == [LogRemoved] * 2
    removal.run()
    job.run()
    waiting.queue.finished(job)
    removal.finish()
    assert len(waiting.answers) == 2
    waiting.assert_nothing_is_left_of(log)
    waiting.append(waiting.setup.other)
    waiting.queue.run_all()
    assert waiting.answers[2:] == [None], "the queue goes on"


@pytest.mark.parametrize("is_out", [False, True])
def test_a_save_that_waits_or_is_out_when_its_log_is_forgotten_keeps_nothing_busy(
    waiting: Waiting, is_out: bool
) -> None:
    log = waiting.setup.log
    waiting.append(log)
    log.roll()
    flush = waiting.queue.next_job()
    assert flush is not None
    flush.run()
    waiting.queue.finished(flush)
    save = waiting.queue.next_job() if is_out else None
    waiting.forget()
    if save is not None:
        save.run()
        waiting.queue.finished(save)
    waiting.assert_nothing_is_left_of(log)
    assert waiting.queue.next_job() is None
    assert log.is_idle


# Setting aside


def test_a_log_that_is_set_aside_is_kept_under_another_name_and_never_opened_again(setup: Setup) -> None:
    before = {path: bytes(setup.files.disk.file(path)) for path in setup.files.disk.names if path.startswith(PARTITION)}
    name = setup.directory.set_aside(ORDERS)
    assert name == f"orders-0.{HEX}-stray"
    after = {path.replace(name, str(ORDERS)): path for path in setup.files.disk.names if f"/{name}/" in path}
    assert {path: bytes(setup.files.disk.file(moved)) for path, moved in after.items()} == before
    for _ in range(2):
        again = setup.reopened()
        assert list(again.logs) == [OTHER]
        assert not again.leftovers
        assert again.begin_delete_leftovers() is None
        assert name in again.files.directories_in(DATA)


def test_no_power_cut_after_a_log_was_set_aside_brings_it_back(setup: Setup) -> None:
    name = setup.directory.set_aside(ORDERS)
    for disk in setup.files.power_cuts(len(setup.files.calls), limit=50):
        assert list(DataDirectory(disk, DATA, SMALL).logs) == [OTHER]
        assert f"{DATA}/{name}" in disk.disk.directories


def test_a_log_is_made_and_set_aside_again_under_a_name_that_was(setup: Setup) -> None:
    names = [setup.directory.set_aside(ORDERS)]
    for _ in range(2):
        setup.directory = setup.reopened()
        log = setup.directory.create(ORDERS, topic_id=TOPIC_ID)
        assert log.end_offset == 0
        log.append(batch_of(1), NOW)
        log.flush()
        setup.files = setup.directory.files  # type: ignore[assignment]
        assert setup.reopened().logs[ORDERS].end_offset == 1
        names.append(setup.directory.set_aside(ORDERS))
    assert len(set(names)) == 3
    assert {*names} <= {*setup.directories}


def test_a_log_that_cannot_be_set_aside_stays_as_it_was(setup: Setup) -> None:
    files = FaultyFiles(RecordingFiles(setup.files.disk.copy()))
    directory = DataDirectory(files, DATA, SMALL)
    files.fail("rename", EIO)
    with pytest.raises(StorageError, match="orders-0"):
        directory.set_aside(ORDERS)
    assert directory.logs[ORDERS].append(batch_of(1), NOW)
    assert directory.set_aside(ORDERS)


def test_a_log_with_a_job_under_way_is_not_set_aside(setup: Setup) -> None:
    setup.log.append(batch_of(1), NOW)
    setup.log.begin_flush()
    with pytest.raises(JobUnderWay):
        setup.directory.set_aside(ORDERS)
    assert setup.directory.logs[ORDERS] is setup.log


def test_a_partition_without_a_directory_stays_in_the_checkpoints_and_keeps_its_name(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path), SMALL)
    write_log(directory.create(ORDERS), 10)
    directory.close(NOW)
    for path in (tmp_path / str(ORDERS)).iterdir():
        path.unlink()
    (tmp_path / str(ORDERS)).rmdir()
    for _ in range(2):
        directory = DataDirectory(OperatingSystemFiles(), str(tmp_path), SMALL)
        assert directory.unavailable[ORDERS].is_lost
        with pytest.raises(LogUnavailable, match="--accept-loss"):
            directory.create(ORDERS)
        directory.create(OTHER)
        directory.checkpoint(NOW)
        assert decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes())[ORDERS] == 27
        directory.begin_remove([OTHER]).run()
        directory.abandon()
