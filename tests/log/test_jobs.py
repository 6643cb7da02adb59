"""Jobs that are out while something else is asked for: what is refused meanwhile, what goes on, what comes after."""

import sys
import threading
from collections.abc import Callable, Iterator
from errno import EDQUOT, EIO, ENOSPC
from pathlib import Path

import pytest
from logs import DATA, ORDERS, SMALL, batch_of, memory_files, reopen, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.jobs import FlushJob, SaveJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import JobUnderWay, LogOffline, OutOfSpace, StorageError
from tailrace.log.log import Log
from tailrace.log.segment.segment import WouldWait
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000


class Setup:
    """A log with a batch in it that is not flushed, on a disk in memory that can be told to fail."""

    def __init__(self) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.create(ORDERS)
        self.append()

    def append(self) -> int:
        """The offset behind what was appended."""
        return self.log.append(batch_of(2, size=5), NOW).last_offset + 1

    def save_that_is_out(self) -> SaveJob:
        flush = self.log.begin_checkpoint(NOW)
        flush.run()
        save = flush.finish()
        assert save is not None
        return save


@pytest.fixture
def setup() -> Setup:
    return Setup()


def taken_from(queue: FlushQueue) -> FlushJob | SaveJob:
    job = queue.next_job()
    assert isinstance(job, FlushJob | SaveJob)
    return job


def run_next(queue: FlushQueue) -> FlushJob | SaveJob:
    job = taken_from(queue)
    job.run()
    queue.finished(job)
    return job


# Readers


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def abort_transactions(log: Log, producers: range) -> None:
    for producer in producers:
        record = Record(0, NOW, b"key", b"value")
        batch = encode_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(batch, NOW)
        log.append(encode_marker(Marker.ABORT, producer, 0, 1, NOW), NOW)


@pytest.mark.usefixtures("frequent_switches")
def test_readers_of_aborted_transactions_never_make_an_append_fail(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path), LogConfig())
    log = directory.create(ORDERS)
    abort_transactions(log, range(300))
    log.flush()
    is_over, counts = threading.Event(), []

    def read() -> None:
        while not is_over.is_set():
            counts.append(len(log.aborted_transactions(0, 1 << 40)))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        abort_transactions(log, range(300, 1200))
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    log.flush()
    assert counts
    assert min(counts) >= 300
    assert len(log.aborted_transactions(0, log.end_offset)) == 1200
    directory.close(NOW)


@pytest.mark.parametrize(
    "ask", [lambda log: log.find_time(1000), lambda log: log.aborted_transactions(0, 10)], ids=["time", "aborted"]
)
def test_a_disk_that_cannot_be_read_is_told_as_a_storage_error(ask: Callable[[Log], object]) -> None:
    memory = memory_files()
    directory = DataDirectory(memory, DATA, SMALL)
    write_log(directory.create(ORDERS), 30)
    directory.close(NOW)
    faulty = FaultyFiles(RecordingFiles(memory.disk.copy()))
    log = DataDirectory(faulty, DATA, SMALL).logs[ORDERS]
    faulty.fail("read_at", EIO, forever=True)
    with pytest.raises(StorageError) as caught:
        ask(log)
    assert caught.value.cause.errno == EIO


# While a flush is out


def test_a_leader_epoch_is_refused_while_a_flush_is_out(setup: Setup) -> None:
    job = setup.log.begin_flush()
    assert job is not None
    with pytest.raises(JobUnderWay):
        setup.log.raise_leader_epoch(5)
    assert setup.log.leader_epoch == 0
    job.run()
    job.finish()
    setup.log.raise_leader_epoch(5)
    setup.append()
    setup.log.flush()
    log, report = reopen(setup.memory.disk)
    assert (log.end_offset, report.damage) == (4, [])
    assert log.leader_epoch > 5  # a new one after every stop that was not clean


def test_a_failed_flush_does_not_forget_a_save_that_is_still_out(setup: Setup) -> None:
    save = setup.save_that_is_out()
    setup.append()
    flush = setup.log.begin_flush()
    assert flush is not None
    setup.files.fail("sync", EIO, name=".log")
    flush.run()
    with pytest.raises(LogOffline):
        flush.finish()
    assert setup.log.saving is save
    with pytest.raises(JobUnderWay):
        setup.directory.close(NOW)
    save.run()
    save.finish()
    assert setup.log.is_idle
    setup.directory.close(NOW)


def test_a_checkpoint_whose_flush_failed_leaves_no_job_behind(setup: Setup) -> None:
    flush = setup.log.begin_checkpoint(NOW)
    setup.files.fail("sync", EIO, name=".log")
    flush.run()
    with pytest.raises(LogOffline):
        flush.finish()
    assert setup.log.is_idle


def test_a_write_refused_for_space_does_no_harm_when_its_segment_is_deleted(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(tmp_path), SMALL)
    log = directory.create(ORDERS)
    log.append(batch_of(2), NOW)
    flush = log.begin_flush()
    assert flush is not None
    files.fail("write_at", ENOSPC, name=".log")
    with pytest.raises(OutOfSpace):
        log.append(batch_of(2), NOW)
    log.roll()
    flush.run()
    flush.finish()
    log.delete_before(log.high_watermark)
    offsets = directory.begin_save_offsets()
    offsets.run()
    offsets.finish()
    log.append(batch_of(2), NOW)
    log.flush()
    assert (log.offline, log.high_watermark) == (None, 4)
    directory.close(NOW)


def test_files_that_a_flush_is_about_to_sync_are_not_removed_before_it_has(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(tmp_path), SMALL)
    log = directory.create(ORDERS)
    log.append(batch_of(2), NOW)
    log.flush()
    first = log.active
    files.fail("write_at", ENOSPC, name=".log")
    with pytest.raises(OutOfSpace):
        log.append(batch_of(2), NOW)
    flush = log.begin_flush()  # which knows of a write that was refused
    assert flush is not None
    log.roll()
    log.delete_before(log.high_watermark)
    for is_there in (True, False):
        offsets = directory.begin_save_offsets()
        offsets.run()
        offsets.finish()
        assert files.exists(first.log.path) is is_there
        if is_there:
            flush.run()
            flush.finish()
    assert log.offline is None
    directory.close(NOW)


def test_a_flush_without_room_for_the_small_files_of_a_new_log_can_be_retried(setup: Setup) -> None:
    queue = FlushQueue(dirty_ms_max=1000)
    told: list[object] = []
    queue.tick(NOW)
    setup.files.fail("write_at", ENOSPC, name="leader-epoch-checkpoint")
    queue.when_flushed(setup.log, 2, told.append)
    run_next(queue)
    assert (told, setup.log.high_watermark, setup.log.offline, setup.log.is_idle) == ([], 0, None, True)
    assert setup.append() == 4
    queue.tick(NOW + 999)
    assert queue.next_job() is None
    queue.tick(NOW + 1000)
    run_next(queue)
    assert (told, setup.log.high_watermark) == ([None], 4)
    log, report = reopen(setup.memory.disk)
    assert (log.end_offset, report.damage) == (4, [])


def test_a_checkpoint_that_finds_no_room_saves_nothing_and_the_next_one_does(setup: Setup) -> None:
    setup.files.fail("rename", EDQUOT, name="leader-epoch-checkpoint")
    flush = setup.log.begin_checkpoint(NOW)
    flush.run()
    with pytest.raises(OutOfSpace):
        flush.finish()
    assert setup.log.is_idle
    setup.log.checkpoint(NOW)
    assert setup.log.is_saved


# How old a segment is


def test_the_largest_timestamp_is_known_for_own_segments_and_found_for_others(setup: Setup) -> None:
    setup.log.append(batch_of(2, time=7000), NOW)
    setup.log.append(batch_of(2, time=3000), NOW)
    assert setup.log.active.largest_timestamp == 7001
    setup.log.roll()
    assert setup.log.active.largest_timestamp is None, "there is nothing in it"
    setup.directory.close(NOW)
    log, _ = reopen(setup.memory.disk)
    sealed = log.segments[0]
    assert sealed.largest_timestamp is None
    assert sealed.find_largest_timestamp() == sealed.largest_timestamp == 7001


@pytest.mark.parametrize("suffix", [".sums", ".index", ".timeindex"])
def test_the_largest_timestamp_is_found_without_what_was_derived(setup: Setup, suffix: str) -> None:
    for time in (7000, 3000):
        setup.log.append(batch_of(2, time=time), NOW)
    setup.log.roll()
    setup.directory.close(NOW)
    setup.memory.remove(setup.log.segments[0].log.path.replace(".log", suffix))
    log, _ = reopen(setup.memory.disk)
    assert log.segments[0].find_largest_timestamp() == 7001


def test_the_largest_timestamp_stays_known_when_indexes_go_from_memory(setup: Setup) -> None:
    setup.log.append(batch_of(2, time=7000), NOW)
    setup.log.roll()
    setup.log.checkpoint(NOW)
    sealed = setup.log.segments[0]
    sealed.forget_derived()
    with pytest.raises(WouldWait):
        sealed.derived(wait=False)
    assert sealed.largest_timestamp == 7001


def test_a_log_knows_its_size_however_it_has_changed(setup: Setup) -> None:
    def is_right(log: Log) -> bool:
        return log.size == sum(segment.size for segment in log.segments) > 0

    for _ in range(60):
        setup.append()
        assert is_right(setup.log)
    setup.log.flush()
    assert len(setup.log.segments) > 2
    setup.log.delete_before(setup.log.segments[1].base_offset)
    assert is_right(setup.log)
    setup.directory.checkpoint(NOW)
    setup.directory.truncate(ORDERS, setup.log.end_offset - 4)
    assert is_right(setup.log)
    assert is_right(reopen(setup.memory.disk)[0])


# While the offsets are being saved


@pytest.mark.parametrize(
    "ask",
    [
        lambda directory: directory.begin_save_offsets(),
        lambda directory: directory.checkpoint(NOW),
        lambda directory: directory.truncate(ORDERS, 0),
        lambda directory: directory.close(NOW),
    ],
    ids=["another", "checkpoint", "truncate", "close"],
)
def test_while_offsets_are_being_saved_a_directory_refuses(
    ask: Callable[[DataDirectory], object], setup: Setup
) -> None:
    job = setup.directory.begin_save_offsets()
    calls = len(setup.memory.calls)
    with pytest.raises(JobUnderWay):
        ask(setup.directory)
    assert len(setup.memory.calls) == calls
    job.run()
    job.finish()
    ask(setup.directory)


# While a save is out


def test_a_checkpoint_requested_while_a_save_is_out_is_done_after_it(setup: Setup) -> None:
    queue = FlushQueue()
    queue.request_checkpoint(setup.log)
    run_next(queue)
    save = taken_from(queue)
    end = setup.append()
    queue.request_checkpoint(setup.log)
    run_next(queue)
    save.run()
    queue.finished(save)
    assert setup.log.recovery_point == 2
    queue.run_all()
    assert setup.log.recovery_point == end


def test_appends_while_a_save_is_out_do_not_each_ask_for_a_flush(setup: Setup) -> None:
    queue = FlushQueue()
    setup.log.roll()
    queue.appended(setup.log, NOW)
    run_next(queue)
    assert isinstance(taken_from(queue), SaveJob)
    for _ in range(20):
        setup.append()
        queue.appended(setup.log, NOW)
        assert queue.next_job() is None


def test_a_save_does_not_starve_behind_flushes(setup: Setup) -> None:
    queue = FlushQueue(in_flight_max=1)
    setup.log.roll()
    queue.appended(setup.log, NOW)
    kinds = []
    for _ in range(3):
        queue.when_flushed(setup.log, setup.append(), lambda error: None)
        job = taken_from(queue)
        queue.when_flushed(setup.log, setup.append(), lambda error: None)
        job.run()
        queue.finished(job)
        kinds.append(type(job))
    assert kinds == [FlushJob, SaveJob, FlushJob]
    assert setup.log.recovery_point > 0


# Closing


@pytest.mark.parametrize("kind", [FlushJob, SaveJob])
def test_a_close_is_refused_and_does_nothing_while_a_job_is_out(kind: type, setup: Setup) -> None:
    job = setup.log.begin_flush() if kind is FlushJob else setup.save_that_is_out()
    assert job is not None
    calls = len(setup.memory.calls)
    with pytest.raises(JobUnderWay):
        setup.log.close(NOW)
    assert len(setup.memory.calls) == calls
    job.run()
    job.finish()
    setup.append()
    setup.log.close(NOW)
    assert setup.log.is_cleanly_closed


@pytest.mark.parametrize("name", [".index", ".sums", ".snapshot"])
def test_a_close_whose_save_failed_leaves_no_clean_marker(name: str, setup: Setup) -> None:
    for _ in range(20):
        setup.append()
    setup.files.fail("write_at", ENOSPC, name=name, forever=True)
    setup.directory.close(NOW)
    assert not setup.memory.exists(f"{DATA}/{CLEAN_SHUTDOWN}")
    log, report = reopen(setup.memory.disk)
    assert (log.end_offset, report.damage) == (42, [])


@pytest.mark.parametrize("name", [".index", ".sums", ".snapshot"])
def test_a_close_after_a_recovery_that_could_not_be_saved_leaves_no_clean_marker(name: str, setup: Setup) -> None:
    for _ in range(20):
        setup.append()
    memory = RecordingFiles(setup.memory.disk.copy())
    files = FaultyFiles(memory)
    files.fail("write_at", ENOSPC, name=name, forever=True)
    DataDirectory(files, DATA, SMALL).close(NOW)
    assert not memory.exists(f"{DATA}/{CLEAN_SHUTDOWN}")
    log, report = reopen(memory.disk)
    assert (log.end_offset, report.damage) == (42, [])


# Truncating


@pytest.mark.parametrize("end", range(0, 13, 2))
def test_after_a_truncation_and_a_kill_nothing_is_lost_and_nothing_damaged(end: int, setup: Setup) -> None:
    for epoch in range(1, 6):
        setup.log.raise_leader_epoch(epoch)
        setup.append()
    setup.directory.truncate(ORDERS, end)
    log, report = reopen(setup.memory.disk)
    assert (log.end_offset, report.damage) == (end, [])
    setup.append()
    log, report = reopen(setup.memory.disk)
    assert (log.end_offset, report.damage) == (end + 2, [])
    assert log.leader_epoch > 5
    setup.log.flush()
    assert stored_batches(log) == stored_batches(setup.log)


@pytest.mark.parametrize("begin", [Log.begin_flush, lambda log: log.begin_checkpoint(NOW)], ids=["flush", "checkpoint"])
def test_a_flush_that_fails_in_a_way_that_nobody_foresaw_takes_the_log_offline(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Log], FlushJob]
) -> None:
    job = begin(setup.log)
    monkeypatch.setattr(job, "_write_small_files", lambda: [][0])
    with pytest.raises(IndexError):
        job.run()
    with pytest.raises(LogOffline):
        job.finish()
    assert setup.log.high_watermark == 0
    assert setup.log.is_idle
