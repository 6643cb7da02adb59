"""Backups and restores that are killed, run out of space, or lose power, at any call to the disk."""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pytest
from backups import (
    DEST,
    RESTORED,
    Killed,
    WatchedFiles,
    a_source,
    back_up,
    batches_of,
    counting,
    restored,
    verified,
    write_more,
)
from brokers import LocalBroker

from tailrace.backup.copy import Copied
from tailrace.backup.store import Store
from tailrace.log.directory.admission import FORMAT_VERSION
from tailrace.log.disk.interface import Files, read_whole
from tailrace.log.layout.errors import UnknownFormat
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

EVERY = pytest.param(1, marks=pytest.mark.crash)
MakeFiles = Callable[[], RecordingFiles]


def killed_at(step: int, work: Callable[[Files], object], files: MakeFiles) -> Iterator[RecordingFiles]:
    """The disk after each call, number `step` and its multiples, at which the process is killed."""
    at, is_over = 0, False
    while not is_over:
        at += step
        disk = files()

        def then(number: int, at: int = at) -> None:
            if number >= at:
                raise Killed

        tell, calls = counting(then)
        try:
            work(WatchedFiles(disk, tell))  # type: ignore[arg-type]
        except Killed:
            yield disk
        is_over = calls[0] < at


def a_source_with_a_backup() -> RecordingFiles:
    """And more in the source than in the backup."""
    files, broker = a_source(batches=20)
    broker.directory.checkpoint(2000)
    back_up(files)
    write_more(broker.log(), 20)
    broker.directory.checkpoint(3000)
    return files


def restored_batches(files: RecordingFiles) -> dict[int, bytes]:
    restored(files)
    return batches_of(LocalBroker(RESTORED, files=files).log())


def all_healthy(files: Files) -> bool:
    return all(verified(files, backup_id).healthy for backup_id in Store(files, DEST).ids())


@pytest.mark.parametrize("step", [EVERY, 53])
def test_a_backup_that_is_killed_leaves_the_one_before_and_the_next_one_tidies_up(step: int) -> None:
    for files in killed_at(step, back_up, a_source_with_a_backup):
        assert Store(files, DEST).ids()
        assert all_healthy(files)
        back_up(files)
        assert verified(files).healthy
        assert not [name for name in files.files_in(f"{DEST}/objects") if name.endswith(".tmp")]
        assert set(files.files_in(DEST)) <= {".lock", "tailrace.backup"}


def test_what_a_killed_backup_has_copied_is_not_copied_again() -> None:
    bytes_read: list[int] = []

    def read_by(files: RecordingFiles) -> int:
        bytes_read.clear()
        back_up(files, Copied(bytes_read.append))
        return sum(bytes_read)

    once = read_by(a_source_with_a_backup())
    after_kills = [read_by(files) for files in killed_at(40, back_up, a_source_with_a_backup)]
    assert after_kills[-1] < once / 3
    assert after_kills == sorted(after_kills, reverse=True)


@pytest.mark.parametrize("step", [EVERY, 70])
def test_whenever_the_power_fails_a_backup_is_there_whole_or_not_at_all(step: int) -> None:
    files = a_source_with_a_backup()
    first = Store(files, DEST).ids()[0]
    before = len(files.calls)
    back_up(files)
    after = len(files.calls)
    for cut in (*range(before, after - 3, step), after - 3, after - 2, after - 1, after):
        for disk in islice(files.power_cuts(cut, limit=4), 3 if step > 1 else 30):
            assert first in Store(disk, DEST).ids()
            assert all_healthy(disk)
            back_up(disk)
            assert verified(disk).healthy


@pytest.mark.parametrize("kind", ["write_at", "sync", "rename", "open", "sync_directory"])
def test_a_disk_that_is_full_fails_the_backup_and_no_other(kind: str) -> None:
    for after in range(0, 1000, 11):
        files = a_source_with_a_backup()
        faulty = FaultyFiles(files)
        faulty.fail(kind, errno.ENOSPC, after=after, forever=True)
        if is_done(partial(back_up, faulty)):
            assert after
            return
        assert all_healthy(files)
        back_up(files)
        assert verified(files).healthy


def is_done(work: Callable[[], object]) -> bool:
    """Whether the disk let it be done."""
    try:
        work()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("step", [EVERY, 31])
def test_a_restore_that_is_killed_is_opened_by_no_broker_and_begins_anew(step: int) -> None:
    wanted = restored_batches(a_source_with_a_backup())
    for files in killed_at(step, restored, a_source_with_a_backup):
        said = read_whole(files, f"{RESTORED}/tailrace.format")
        if said == f"{FORMAT_VERSION}\n".encode():  # it was done, but for the last sync
            assert batches_of(LocalBroker(RESTORED, files=files).log()) == wanted
            continue
        if said is not None:
            with pytest.raises(UnknownFormat, match="unfinished restore"):
                LocalBroker(RESTORED, files=files)
        else:
            assert not files.exists(RESTORED) or not files.directories_in(RESTORED)
        assert restored_batches(files) == wanted


@pytest.mark.parametrize("step", [EVERY, 30])
def test_whenever_the_power_fails_a_restore_is_whole_or_says_that_it_is_not(step: int) -> None:
    files = a_source_with_a_backup()
    before = len(files.calls)
    restored(files)
    after = len(files.calls)
    wanted = batches_of(LocalBroker(RESTORED, files=files).log())
    opened = 0
    for cut in (*range(before + 3, after, step), after - 1, after):
        for disk in islice(files.power_cuts(cut, limit=4), 3 if step > 1 else 30):
            if not disk.exists(f"{RESTORED}/tailrace.format"):
                assert not disk.exists(RESTORED) or not disk.directories_in(RESTORED)
                continue
            try:
                broker = LocalBroker(RESTORED, files=disk)
            except UnknownFormat:
                continue
            opened += 1
            assert batches_of(broker.log()) == wanted
    assert opened
