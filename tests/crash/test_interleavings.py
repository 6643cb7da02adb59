"""Jobs begun, run and finished in any order, between appends, rolls, deletions and truncations; and a stop anywhere.

Each seed is one life of a log on a disk in memory: steps by lot, and now and then a kill, a clean close, or a power
cut at some call inside the last step. After every stop the log is opened again, and then

    what was promised is there: to the byte, up to the high watermark, and after a kill or a close up to the end
    nothing else is there, nothing counts as damaged, and the log starts where somebody asked it to
    times, producers and aborted transactions are what a scan without any derived file finds
    the next start says the same again

and the same log goes on from there to the next stop. A failure names its seed and prints the steps.
"""

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from logs import DATA, ORDERS, SMALL, answers, batch_of, memory_files, reopen, stored_batches

from tailrace.log.directory.directory import DataDirectory, OffsetsJob
from tailrace.log.files.journal_file import BYTES_MIN, size_of_journal_write
from tailrace.log.flush.journal import make_journal
from tailrace.log.flush.journal_write import JournalWriteJob
from tailrace.log.flush.journal_write import bytes_to_journal as bytes_to_journal
from tailrace.log.jobs import FlushJob, SaveJob
from tailrace.log.log import Log
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing import recording_files
from tailrace.testing.recording_files import KEPT, LOST, Call, Disk, RecordedFile, RecordingFiles

SHARES = 4
SEEDS = 160
CRASH_SHARES = 20
CRASH_SEEDS = 5000

WEIGHTS = {
    "append": 8,
    "append_to_transaction": 1,
    "end_transaction": 1,
    "roll": 1,
    "begin_flush": 2,
    "run_flush": 2,
    "finish_flush": 2,
    "begin_commit": 3,
    "run_commit": 3,
    "finish_commit": 3,
    "begin_checkpoint": 1,
    "run_save": 1,
    "finish_save": 1,
    "begin_offsets": 1,
    "run_offsets": 1,
    "finish_offsets": 1,
    "delete_before": 0.5,
    "truncate": 0.4,
    "raise_leader_epoch": 1,
    "cut_power": 1,
    "kill": 1,
    "close": 1,
}
CUT_AFTER_ANY_STEP = 0.03
DERIVED = ("snapshot", "index", "timeindex", "txnindex", "sums", "kafka_cleanshutdown")


class Written(NamedTuple):
    base_offset: int
    next_offset: int
    data: bytes


@dataclass
class Promised:
    """What must be there after a stop: one of the histories, up to the end of some batch of it."""

    histories: list[list[Written]]  # two of them where a truncation may have been done or not
    end_min: int
    start_min: int
    start_max: int


@dataclass
class Before:
    """How things stood before the step that is being done."""

    calls: int
    high_watermark: int
    start_on_disk: int
    written: list[Written] | None = None  # where the step takes something of it back


@dataclass
class Interleaving:
    seed: int
    steps: list[str] = field(default_factory=list)
    now_ms: int = 1000
    written: list[Written] = field(default_factory=list)
    start_on_disk: int = 0

    def __post_init__(self) -> None:
        self.lot = random.Random(self.seed)
        self.sequences: dict[int, int] = {}
        self.files = memory_files()
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.create(ORDERS, topic_id=bytes(range(16)))
        self.log.flush()
        self.directory.journal = make_journal(self.files, DATA, BYTES_MIN)
        self._forget_jobs()

    def play(self) -> None:
        count = self.lot.choice([15, 40, 90])
        try:
            for name in self.lot.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count):
                self._step(name)
        except Exception as error:
            error.add_note("\n  ".join([f"seed {self.seed}, after these steps:", *self.steps]))
            raise

    def _step(self, name: str) -> None:
        self.now_ms += self.lot.randint(0, 30)
        self.before = Before(len(self.files.calls), self.log.high_watermark, self.start_on_disk)
        getattr(self, name)()
        if self.lot.random() < CUT_AFTER_ANY_STEP:
            self.cut_power()

    def _say(self, step: str) -> None:
        self.steps.append(step)

    # Appending

    def append(self) -> None:
        producer, count = self.lot.choice([-1, -1, 7, 8]), self.lot.randint(1, 4)
        size = self.lot.choice([5, 50, 400])
        sequence = self._take_sequences(producer, count)
        data = batch_of(count, time=self.now_ms, size=size, producer=producer, sequence=sequence)
        self._append(data, f"append by {producer}")

    def append_to_transaction(self) -> None:
        producer = self.lot.choice([90, 91])
        data = encode_batch(
            [Record(0, self.now_ms, b"key", b"in a transaction")],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self._take_sequences(producer, 1),
            transactional=True,
        )
        self._append(data, f"append to the transaction of {producer}")

    def end_transaction(self) -> None:
        producers = self.log.producers.producers
        if ongoing := [number for number, producer in producers.items() if producer.transaction_start != -1]:
            producer = self.lot.choice(ongoing)
            marker = self.lot.choice([Marker.ABORT, Marker.ABORT, Marker.ABORT, Marker.COMMIT])
            self._append(encode_marker(marker, producer, 0, 1, self.now_ms), f"{marker.name} by {producer}")

    def _append(self, data: bytearray, step: str) -> None:
        appended = self.log.append(data, self.now_ms)
        assert not appended.is_duplicate
        self.written.append(Written(appended.base_offset, appended.last_offset + 1, bytes(data)))
        self._say(f"{step}: {appended.base_offset} to {appended.last_offset}")

    def _take_sequences(self, producer: int, count: int) -> int:
        if producer < 0:
            return -1
        first = self.sequences.get(producer, 0)
        self.sequences[producer] = first + count
        return first

    def _learn_sequences(self) -> None:
        """A producer goes on behind the last batch that is left of it."""
        producers = self.log.producers.producers.items()
        self.sequences = {number: producer.last_sequence + 1 for number, producer in producers if producer.batches}

    def roll(self) -> None:
        self.log.roll()
        self._say("roll")

    # Jobs

    def _forget_jobs(self) -> None:
        self.flush: Any = None
        self.commit: Any = None
        self.save: Any = None
        self.offsets: Any = None
        self.offsets_start = 0
        self.was_run: set[object] = set()

    @property
    def is_idle(self) -> bool:
        return self.flush is None and self.save is None and self.offsets is None and self.commit is None

    def _run(self, job: FlushJob | JournalWriteJob | SaveJob | OffsetsJob | None) -> bool:
        """Whether there was something to run."""
        if job is None or job in self.was_run:
            return False
        job.run()
        self.was_run.add(job)
        self._say(f"run {type(job).__name__}")
        return True

    def begin_flush(self) -> None:
        if self.flush is None:
            self.flush = self.log.begin_flush()
            self._say(f"begin FlushJob up to {self.log.end_offset}")

    def begin_checkpoint(self) -> None:
        if self.flush is None and self.save is None:
            self.flush = self.log.begin_checkpoint(self.now_ms)
            self._say(f"begin FlushJob with a SaveJob up to {self.log.end_offset}")

    def run_flush(self) -> None:
        self._run(self.flush)

    def finish_flush(self) -> None:
        if self.flush in self.was_run:
            self.save = self.flush.finish() or self.save
            self.flush = None
            self._say(f"finish FlushJob: high watermark {self.log.high_watermark}")

    def begin_commit(self) -> None:
        journal, size = self.directory.use_journal(BYTES_MIN), bytes_to_journal(self.log)
        assert journal is not None
        if self.commit is None and size and journal.make_room(size_of_journal_write(1, len(self.log.name), size)):
            self.commit = JournalWriteJob(journal, [self.log])
            self._say(f"begin JournalWriteJob up to {self.log.end_offset}")

    def run_commit(self) -> None:
        self._run(self.commit)

    def finish_commit(self) -> None:
        if self.commit in self.was_run:
            assert self.commit.finish() == []
            self.commit = None
            self._say(f"finish JournalWriteJob: high watermark {self.log.high_watermark}")

    def run_save(self) -> None:
        self._run(self.save)

    def finish_save(self) -> None:
        if self.save in self.was_run:
            self.save.finish()
            self.save = None
            self._say(f"finish SaveJob: recovery point {self.log.recovery_point}")

    def begin_offsets(self) -> None:
        if self.offsets is None:
            self.offsets = self.directory.begin_save_offsets()
            self.offsets_start = self.log.start_offset
            self._say(f"begin OffsetsJob: start {self.offsets_start}")

    def run_offsets(self) -> None:
        if self._run(self.offsets):
            self.start_on_disk = max(self.start_on_disk, self.offsets_start)

    def finish_offsets(self) -> None:
        if self.offsets in self.was_run:
            self.offsets.finish()
            self.offsets = None
            self._say("finish OffsetsJob")

    # Shortening, and epochs

    def delete_before(self) -> None:
        offset = self.lot.randint(self.log.start_offset, self.log.high_watermark)
        self.log.delete_before(offset)
        self._say(f"delete before {offset}")

    def truncate(self) -> None:
        if not self.is_idle:
            return
        offset = self.lot.randint(self.log.start_offset, self.log.end_offset)
        end = self.log.end_after_truncation(offset)
        self._say(f"truncate at {offset}: at {end}")
        self.directory.truncate(ORDERS, offset)
        assert self.log.end_offset == end
        self.before.written = self.written
        self.before.high_watermark = min(self.before.high_watermark, end)
        self.written = [batch for batch in self.written if batch.next_offset <= end]
        self.start_on_disk = max(self.start_on_disk, self.log.start_offset)
        self._learn_sequences()

    def raise_leader_epoch(self) -> None:
        if self.flush is None:
            self.log.raise_leader_epoch(self.log.leader_epoch + 1)
            self._say(f"raise the leader epoch to {self.log.leader_epoch}")

    # Stops

    def kill(self) -> None:
        """What was written stays: the page cache outlives the process."""
        self._say("kill")
        self._start(self.files.disk.copy(), self._promised(self.log.end_offset, self.start_on_disk))

    def close(self) -> None:
        if self.is_idle:
            self._say("close")
            self.directory.close(self.now_ms)
            self._start(self.files.disk.copy(), self._promised(self.log.end_offset, self.log.start_offset))

    def cut_power(self) -> None:
        calls = self.lot.randint(self.before.calls, len(self.files.calls))
        self._say(f"power cut at call {calls - self.before.calls} of {len(self.files.calls) - self.before.calls}")
        promised = self._promised(self.log.high_watermark, self.start_on_disk)
        if calls < len(self.files.calls):
            promised.end_min = min(promised.end_min, self.before.high_watermark)
            promised.start_min = self.before.start_on_disk
        if self.before.written is not None:
            promised.histories.append(self.before.written)
        self._start(disk_after_power_cut(self.files, calls, self.lot), promised)

    def _promised(self, end_min: int, start_min: int) -> Promised:
        return Promised([self.written], end_min, start_min, max(start_min, self.log.start_offset))

    def _start(self, disk: Disk, promised: Promised) -> None:
        self.files = RecordingFiles(disk)
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.logs[ORDERS]
        self._say(f"start: {self.log.start_offset} to {self.log.end_offset}, epoch {self.log.leader_epoch}")
        self.written = check_after(promised, self.directory)
        self.start_on_disk = max(promised.start_min, self.log.start_offset)
        self.before = Before(len(self.files.calls), self.log.high_watermark, self.start_on_disk)
        self._forget_jobs()
        self._learn_sequences()


def disk_after_power_cut(files: RecordingFiles, calls: int, lot: random.Random) -> Disk:
    """One of the states the disk may be in if the power fails after that many calls: all kept, all lost, or by lot.

    Of each file only the last write may be torn: one torn before a whole one leaves damage beyond the high watermark,
    which is legal, and which `test_power_cut.py` allows for.
    """
    done = files.calls[:calls]
    unsafe = recording_files._unsafe(done)
    last = {done[number].inode: number for number in unsafe if done[number].kind == "write"}
    mode = lot.choice([KEPT, LOST, "by lot", "by lot"])

    def fate(number: int, call: Call) -> str:
        if mode != "by lot":
            return mode
        return lot.choice(call.fates if last.get(call.inode) == number else (KEPT, LOST))

    return files._rebuild(done, {number: fate(number, done[number]) for number in unsafe})


def check_after(promised: Promised, directory: DataDirectory) -> list[Written]:
    """What is left of what was written."""
    log = directory.logs[ORDERS]
    assert not directory.reports[ORDERS].damage
    assert log.end_offset >= promised.end_min, "what was promised is gone"
    assert promised.start_min <= log.start_offset <= promised.start_max
    left = what_is_left(promised.histories, log)
    if log.start_offset == 0:  # otherwise a scan cannot know the producers of what was deleted
        check_same(log, without_derived_files(directory))
    again, _ = reopen(directory.files.disk)  # type: ignore[attr-defined]
    check_same(log, again)
    return left


def what_is_left(histories: list[list[Written]], log: Log) -> list[Written]:
    found = stored_batches(log)
    for history in histories:
        left = [batch for batch in history if batch.next_offset <= log.end_offset]
        is_whole = not left or left[-1].next_offset == log.end_offset or log.start_offset == log.end_offset
        wanted = {batch.base_offset: batch.data for batch in left if batch.next_offset > log.start_offset}
        if is_whole and wanted == found:
            return left
    offsets = [[batch[:2] for batch in history] for history in histories]
    raise AssertionError(f"found {sorted(found)} up to {log.end_offset}, where these were written: {offsets}")


def without_derived_files(directory: DataDirectory) -> Log:
    disk = directory.files.disk.copy()  # type: ignore[attr-defined]
    for path in [path for path in disk.names if path.endswith(DERIVED)]:
        del disk.names[path]
    return reopen(disk)[0]


def check_same(log: Log, other: Log) -> None:
    assert answers(log) == answers(other)
    assert log.last_stable_offset == other.last_stable_offset


def check_share(share: int, shares: int, seeds: int) -> None:
    for seed in range(share, seeds, shares):
        Interleaving(seed).play()


@pytest.mark.parametrize("share", range(SHARES))
def test_no_interleaving_of_jobs_and_stops_takes_back_a_promise(share: int) -> None:
    check_share(share, SHARES, SEEDS)


@pytest.mark.crash
@pytest.mark.parametrize("share", range(CRASH_SHARES))
def test_no_interleaving_of_many_more_takes_back_a_promise(share: int) -> None:
    check_share(share, CRASH_SHARES, CRASH_SEEDS)


def test_every_step_is_taken() -> None:
    taken = {step.split(" ")[0] for seed in range(SEEDS // SHARES) for step in played(seed).steps}
    assert {"append", "ABORT", "COMMIT", "roll", "begin", "run", "finish"} <= taken
    assert {"delete", "truncate", "raise", "power", "kill", "close"} <= taken


def played(seed: int) -> Interleaving:
    interleaving = Interleaving(seed)
    interleaving.play()
    return interleaving


def sync_other_files_only(file: RecordedFile) -> None:
    if not file.path.endswith(".log"):
        file._files.record(Call("sync", file._number))


def does_nothing(*_: object) -> None:
    pass


def writes_only(file: RecordedFile, position: int, data: bytes) -> None:
    file.write_at(position, data)


CONTROLS: dict[str, tuple[str, object]] = {
    "syncs no segment": ("tailrace.testing.recording_files.RecordedFile.sync", sync_other_files_only),
    "syncs no directory": ("tailrace.testing.recording_files.RecordingFiles.sync_directory", does_nothing),
    "syncs no commit": ("tailrace.testing.recording_files.RecordedFile.write_synced_at", writes_only),
    "reads no journal": ("tailrace.log.directory.directory.read_journal", lambda *_: []),
    "saves no epoch": ("tailrace.log.log.Log._save_epochs", does_nothing),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_the_harness_sees_a_log_that(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*CONTROLS[control])
    with pytest.raises((AssertionError, LookupError)) as caught:  # a lookup: the whole log is gone
        check_share(0, 1, SEEDS)
    assert "after these steps" in caught.value.__notes__[0]
