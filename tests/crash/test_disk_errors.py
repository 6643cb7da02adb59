"""Disks that refuse: every call of a script fails once, or from then on. Typed errors, nothing corrupt, reads go on."""

from collections.abc import Callable
from errno import EIO, ENOSPC

import pytest
from logs import DATA, ORDERS, SMALL, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import LogError, LogOffline, OutOfSpace
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

KINDS = ("write_at", "sync", "open", "rename", "remove", "truncate", "sync_directory")
NOW = 5000


class Workload:
    """Appends, rolls, flushes, checkpoints and deletes, on a disk that may refuse any of it."""

    def __init__(self) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.create(ORDERS)
        self.log.flush()
        self.files.count.clear()
        self.errors: list[LogError] = []
        self.flushed: dict[int, bytes] = {}
        self.start = 0

    def attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except LogError as error:
            self.errors.append(error)

    def append(self) -> None:
        data = batch_of(3)
        appended = self.log.append(data, NOW)
        self.appended[appended.base_offset] = bytes(data)

    def flush(self) -> None:
        self.log.flush()
        self.flushed.update(self.appended)
        self.appended.clear()

    def delete(self) -> None:
        self.log.delete_before(12)
        self.start = 12
        self.directory.checkpoint(NOW)

    def run(self) -> None:
        self.appended: dict[int, bytes] = {}
        for number in range(16):
            self.attempt(self.append)
            if number % 2:
                self.attempt(self.flush)
            if number % 6 == 5:
                self.attempt(lambda: self.directory.checkpoint(NOW))
        self.attempt(self.delete)
        self.attempt(self.append)
        self.attempt(self.flush)

    def check(self) -> None:
        expected = {offset: data for offset, data in self.flushed.items() if offset >= self.start}
        readable = stored_batches(self.log)
        assert all(readable[offset] == data for offset, data in expected.items()), "what was flushed cannot be read"
        calls = len(self.memory.calls)
        for disk in self.memory.power_cuts(calls, limit=8, seed=1):
            log = DataDirectory(disk, DATA, SMALL).logs[ORDERS]
            survived = stored_batches(log)
            assert all(survived[offset] == data for offset, data in expected.items()), "a restart lost what was flushed"
            assert not log.damage


def calls_of(kind: str) -> int:
    healthy = Workload()
    healthy.run()
    assert not healthy.errors
    return healthy.files.count[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
def test_each_failed_call_raises_a_typed_error_and_loses_no_flushed_records(
    kind: str, error: int, forever: bool
) -> None:
    for number in range(calls_of(kind)):
        workload = Workload()
        workload.files.fail(kind, error, after=number, forever=forever)
        workload.run()
        workload.files.heal()
        workload.check()


def test_a_failed_fsync_takes_the_log_offline_and_is_never_tried_again() -> None:
    workload = Workload()
    workload.run()
    workload.log.append(batch_of(1), NOW)
    workload.files.fail("sync", EIO, name=".log")
    seen = workload.log.high_watermark
    with pytest.raises(LogOffline) as first:
        workload.log.flush()
    assert first.value.cause.errno == EIO
    syncs = workload.files.count["sync"]
    for again in (workload.log.flush, lambda: workload.log.append(batch_of(1), NOW), workload.log.roll):
        with pytest.raises(LogOffline):
            again()
    assert workload.files.count["sync"] == syncs
    assert workload.log.high_watermark == seen
    workload.check()


def test_everyone_who_waits_for_a_flush_that_fails_is_told() -> None:
    workload = Workload()
    queue, answers = FlushQueue(), []
    end = workload.log.append(batch_of(2), NOW).last_offset + 1
    for _ in range(3):
        queue.when_flushed(workload.log, end, answers.append)
    workload.files.fail("sync", EIO, name=".log")
    queue.run_all()
    assert [type(answer) for answer in answers] == [LogOffline] * 3
    queue.when_flushed(workload.log, end, answers.append)
    assert isinstance(answers[-1], LogOffline)


@pytest.mark.parametrize("kind", ["write_at", "open"])
def test_a_full_disk_refuses_appends_until_there_is_room_and_nothing_is_lost(kind: str) -> None:
    workload = Workload()
    workload.run()
    workload.files.fail(kind, ENOSPC, name=".log", forever=True)
    refused = 0
    for _ in range(10):  # enough to need a new segment
        try:
            workload.log.append(batch_of(3), NOW)
        except OutOfSpace:
            refused += 1
    assert refused
    end = workload.log.end_offset
    assert stored_batches(workload.log)
    workload.files.heal()
    assert workload.log.append(batch_of(3), NOW).base_offset == end
    workload.log.flush()
    workload.check()


def test_a_directory_that_cannot_be_opened_says_so_and_can_be_opened_later() -> None:
    workload = Workload()
    workload.run()
    for kind in ("write_at", "sync", "rename", "sync_directory"):
        files = FaultyFiles(RecordingFiles(workload.memory.disk.copy()))
        files.fail(kind, EIO, forever=True)
        with pytest.raises(LogError):
            DataDirectory(files, DATA, SMALL)
        files.heal()
        log = DataDirectory(files, DATA, SMALL).logs[ORDERS]
        assert stored_batches(log).items() >= {o: d for o, d in workload.flushed.items() if o >= 12}.items()


def test_a_stop_that_could_not_save_everything_does_not_count_as_clean() -> None:
    workload = Workload()
    workload.run()
    workload.log.append(batch_of(1), NOW)
    workload.files.fail("write_at", ENOSPC, name=".index", forever=True)
    workload.directory.close(NOW)
    workload.files.heal()
    assert not DataDirectory(workload.files, DATA, SMALL).was_clean
