"""Removing a log and making another one of the same name, with power cuts at every call and disks that refuse any.

A log that stays loses nothing. One that is removed is there, whole, or is not there at all. One that is made under
its name begins at 0, and is never taken for the one before: not by offsets that were saved for that one, nor by a
job of it that comes late.
"""

from collections.abc import Callable
from errno import EIO, ENOSPC

import pytest
from logs import DATA, ORDERS, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.directory.removal import RemoveJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import StorageError
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000
STAYS = TopicPartition("stays", 0)
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=150)
FIRST, SECOND, THIRD = b"first topic id..", b"second topic id.", b"third topic id.."


class Script:
    """Two logs, of which one is removed and made again; and after which call what was promised of them."""

    def __init__(self) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.directory = DataDirectory(self.files, DATA, CONFIG)
        self.stays: dict[int, bytes] = {}
        self.stays_from = 0
        self.first: dict[int, bytes] = {}
        self.second: dict[int, bytes] = {}
        self.flushed: list[tuple[int, int, int]] = [(0, 0, 0)]  # calls, and batches of those that stay and come second
        self.removal_begins = self.removal_ends = 1 << 40
        self.other = self.directory.create(STAYS, topic_id=THIRD)
        self.log = self.directory.create(ORDERS, topic_id=FIRST)
        for size in (20, 40, 60, 80):
            self.append(self.other, self.stays)
            self.append(self.log, self.first, size)
        self.log.flush()
        self.log.delete_before(sorted(self.first)[2])
        self.directory.checkpoint(NOW)
        self.first = {offset: data for offset, data in self.first.items() if offset >= self.log.start_offset}
        self.made = len(self.memory.calls)
        self.note()

    def append(self, log: Log, batches: dict[int, bytes], size: int = 30) -> None:
        data = batch_of(2, size=size)
        appended = log.append(data, NOW)
        batches[appended.base_offset] = bytes(data)

    def note(self) -> None:
        self.flushed.append((len(self.memory.calls), len(self.stays), len(self.second)))

    def begin_remove(self) -> RemoveJob:
        self.removal_begins = len(self.memory.calls)
        return self.directory.begin_remove([ORDERS])

    def run(self, job: RemoveJob) -> None:
        job.run()
        self.removal_ends = len(self.memory.calls)

    def create_again(self) -> None:
        self.log = self.directory.create(ORDERS, topic_id=SECOND)
        self.append(self.log, self.second, 100)
        self.append(self.log, self.second, 100)
        self.log.flush()
        self.note()

    def go_on(self) -> None:
        self.append(self.other, self.stays)
        self.other.flush()
        self.note()

    def promised(self, calls: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """What must be there of the log that stays, and of the one that comes second."""
        _, stays, second = [entry for entry in self.flushed if entry[0] <= calls][-1]
        left = {offset: data for offset, data in list(self.stays.items())[:stays] if offset >= self.stays_from}
        return left, dict(list(self.second.items())[:second])


def remove_and_create(script: Script) -> None:
    job = script.begin_remove()
    script.run(job)
    deletion = job.finish()
    script.create_again()
    assert deletion is not None
    deletion.run()
    script.go_on()
    deletion.finish()


def remove_while_the_log_is_flushed_and_saved(script: Script) -> None:
    script.append(script.log, {})
    checkpoint = script.log.begin_checkpoint(NOW)
    checkpoint.run()
    save = checkpoint.finish()
    script.append(script.log, {})
    flush = script.log.begin_flush()
    assert flush is not None
    assert save is not None
    job = script.begin_remove()
    flush.run()
    script.run(job)
    deletion = job.finish()
    script.create_again()
    for late in (save, flush):
        late.run()
        late.finish()
    assert deletion is not None
    deletion.run()
    script.go_on()


def remove_while_offsets_are_saved(script: Script) -> None:
    script.log.delete_before(script.log.high_watermark)
    early = script.directory.begin_save_offsets()
    job = script.begin_remove()
    script.run(job)
    job.finish()
    script.create_again()
    early.run()
    early.finish()
    script.go_on()


def save_offsets_while_a_removal_waits(script: Script) -> None:
    job = script.begin_remove()
    script.stays_from = sorted(script.stays)[3]
    script.other.delete_before(script.stays_from)
    offsets = script.directory.begin_save_offsets()
    offsets.run()
    offsets.finish()
    late = script.directory.begin_save_offsets()
    script.run(job)
    job.finish()
    script.create_again()
    late.run()
    late.finish()
    script.go_on()


def remove_what_was_never_flushed(script: Script) -> None:
    new = TopicPartition("new", 0)
    script.append(script.directory.create(new, topic_id=THIRD), {})
    script.removal_begins = len(script.memory.calls)
    job = script.directory.begin_remove([new, ORDERS])
    script.run(job)
    deletion = job.finish()
    assert deletion is not None
    deletion.run()
    script.create_again()


SCRIPTS = [
    remove_and_create,
    remove_while_the_log_is_flushed_and_saved,
    remove_while_offsets_are_saved,
    save_offsets_while_a_removal_waits,
    remove_what_was_never_flushed,
]


def check(script: Script, calls: int, disk: RecordingFiles) -> None:
    directory = DataDirectory(disk, DATA, CONFIG)
    stays, second = script.promised(calls)
    log = directory.logs[STAYS]
    assert (log.damage, log.topic_id) == ([], THIRD)
    assert stored_batches(log).items() >= stays.items()
    orders = directory.logs.get(ORDERS)
    if orders is None:
        assert calls >= script.removal_begins, "it is gone before anyone has removed it"
        assert not second, "the new one is gone"
    elif orders.topic_id == FIRST:
        assert calls < script.removal_ends, "it is back"
        assert orders.start_offset <= min(script.first)
        assert {**script.first, **stored_batches(orders)} == stored_batches(orders), "it is there, but not whole"
    else:
        assert calls >= script.removal_ends
        assert orders.topic_id == SECOND or not second
        assert orders.start_offset == 0
        assert second.items() <= stored_batches(orders).items() <= script.second.items()
    assert not any(report.damage for report in directory.reports.values())
    check_name_is_free(directory, disk)


def check_name_is_free(directory: DataDirectory, disk: RecordingFiles) -> None:
    if ORDERS in directory.unavailable:  # a checkpoint still names it: a start of the broker forgets deleted topics
        directory.forget([ORDERS])
    if ORDERS in directory.logs:
        job = directory.begin_remove([ORDERS])
        job.run()
        job.finish()
    deletion = directory.begin_delete_leftovers()
    if deletion is not None:
        deletion.run()
        deletion.finish()
    data = batch_of(3)
    directory.create(ORDERS, topic_id=THIRD).append(data, NOW)
    directory.close(NOW)
    again = DataDirectory(RecordingFiles(disk.disk.copy()), DATA, CONFIG)
    assert stored_batches(again.logs[ORDERS]) == {0: bytes(data)}
    assert again.was_clean


def check_every_cut(script: Script, limit: int) -> None:
    for calls in reversed(range(script.made, len(script.memory.calls) + 1)):
        for disk in script.memory.power_cuts(calls, limit=limit, seed=calls):
            check(script, calls, disk)


@pytest.mark.slow
@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_no_power_cut_during_a_removal_harms_another_log_or_restores_half_of_one(
    play: Callable[[Script], None],
) -> None:
    script = Script()
    play(script)
    check_every_cut(script, limit=1)


@pytest.mark.crash
@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_no_power_cut_of_many_more_does_either(play: Callable[[Script], None]) -> None:
    script = Script()
    play(script)
    check_every_cut(script, limit=400)


CONTROLS = {
    "syncs no name": ("tailrace.testing.faulty_files.FaultyFiles.sync_directory", remove_and_create),
    "leaves the offsets of the first": (
        "tailrace.log.directory.offset_checkpoints.OffsetCheckpoints.take_away",
        save_offsets_while_a_removal_waits,
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_the_harness_sees_a_removal_that(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, play = CONTROLS[control]
    script = Script()
    monkeypatch.setattr(target, lambda *_: None)
    play(script)
    monkeypatch.undo()
    with pytest.raises((AssertionError, LookupError)):
        check_every_cut(script, limit=60)


# Disks that refuse

KINDS = ("write_at", "sync", "open", "rename", "remove", "remove_directory", "sync_directory")


def remove_all(script: Script) -> list[StorageError]:
    """Removes and deletes, and begins again after an error."""
    errors = []
    for _ in range(2):
        try:
            deletion = None
            if ORDERS in script.directory.logs or ORDERS in script.directory.removing:
                job = script.directory.begin_remove([ORDERS])
                job.run()
                deletion = job.finish()
            deletion = deletion or script.directory.begin_delete_leftovers()
            if deletion is not None:
                deletion.run()
                deletion.finish()
        except StorageError as error:
            errors.append(error)
            script.files.heal()
    return errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [EIO, ENOSPC])
def test_a_removal_that_fails_at_any_call_harms_no_other_log_and_can_be_repeated(kind: str, error: int) -> None:
    healthy = Script()
    healthy.files.count.clear()
    assert remove_all(healthy) == []
    assert healthy.files.count[kind]
    for number in range(healthy.files.count[kind]):
        script = Script()
        script.files.fail(kind, error, after=number)
        assert len(remove_all(script)) == 1
        assert not script.directory.leftovers
        assert script.memory.directories_in(DATA) == [str(STAYS)]
        script.go_on()
        script.create_again()
        assert stored_batches(script.other) == script.stays
        script.directory.close(NOW)
        again = DataDirectory(RecordingFiles(script.memory.disk.copy()), DATA, CONFIG)
        assert again.was_clean
        assert stored_batches(again.logs[STAYS]) == script.stays
        assert stored_batches(again.logs[ORDERS]) == script.second


def test_a_removal_that_never_succeeds_leaves_a_whole_log_to_the_next_start() -> None:
    script = Script()
    job = script.directory.begin_remove([ORDERS])
    script.files.fail("rename", EIO, name="-delete", forever=True)
    job.run()
    with pytest.raises(StorageError, match="orders-0"):
        job.finish()
    script.directory.close(NOW)
    again = DataDirectory(RecordingFiles(script.memory.disk.copy()), DATA, CONFIG)
    assert not again.was_clean, "its last records may not have been flushed"
    assert stored_batches(again.logs[ORDERS]).items() >= script.first.items()
    assert again.logs[ORDERS].start_offset == min(script.first)
