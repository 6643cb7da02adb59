"""Every state that a power cut may leave, in memory: each prefix of a script's file calls, with each legal loss."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.journal_file import BYTES_MIN
from tailrace.log.flush.journal import make_journal
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.log.state.producer_state import ProducerState
from tailrace.records.batch import split
from tailrace.records.control import Marker, encode_marker, marker_of
from tailrace.records.record import Record, encode_batch
from tailrace.testing.recording_files import Disk, RecordingFiles

DATA = "disk/data"
ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


@dataclass
class Script:
    """A log at work on a recording disk, and what its readers could see after each call."""

    files: RecordingFiles = field(default_factory=lambda: RecordingFiles(Disk(directories={"disk", DATA})))
    written: dict[int, bytes] = field(default_factory=dict)
    seen: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])  # calls, high watermark, start
    now_ms: int = 1_000
    sequence: int = 0
    config: LogConfig = CONFIG

    def __post_init__(self) -> None:
        self.directory = DataDirectory(self.files, DATA, self.config)
        self.log = self.directory.create(ORDERS, topic_id=bytes(range(16)))
        self.queue = FlushQueue()

    def append(self, count: int = 2, *, size: int = 60, producer: int = -1, transactional: bool = False) -> None:
        sequence = self.sequence if producer >= 0 else -1
        data = encode_batch(
            [Record(number, self.now_ms, b"key", bytes([65 + number]) * size) for number in range(count)],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        if producer >= 0:
            self.sequence += count
        self._append(data)

    def end_transaction(self, producer: int, marker: Marker) -> None:
        self._append(encode_marker(marker, producer, 0, 0, self.now_ms))

    def _append(self, data: bytearray) -> None:
        self.now_ms += 10
        appended = self.log.append(data, self.now_ms)
        self.written[appended.base_offset] = bytes(data)
        self.note()

    def note(self) -> None:
        self.seen.append((len(self.files.calls), self.log.high_watermark, self.log.start_offset))

    def flush(self) -> None:
        self.log.flush()
        self.note()

    def make_journal(self) -> None:
        self.flush()
        self.queue.journal = self.directory.journal = make_journal(self.files, DATA, BYTES_MIN)
        self.note()

    def commit(self) -> None:
        """As the broker does when somebody waits: where the journal does not take it, the log is flushed."""
        self.queue.request(self.log)
        self.queue.run_all()
        assert self.log.high_watermark == self.log.end_offset
        self.note()

    def checkpoint(self) -> None:
        self.directory.checkpoint(self.now_ms)
        self.note()

    def delete_before(self, offset: int) -> None:
        self.log.delete_before(offset)
        self.note()

    def close(self) -> None:
        self.directory.close(self.now_ms)
        self.note()

    def seen_after(self, calls: int) -> tuple[int, int]:
        """The high watermark that a reader may have seen by then, and the largest start offset anyone asked for."""
        past = [entry for entry in self.seen if entry[0] <= calls]
        following = [entry for entry in self.seen if entry[0] > calls][:1]
        return past[-1][1], max(start for _, _, start in past + following)

    def producers_at(self, end: int) -> dict[int, object]:
        state = ProducerState()
        for base_offset in sorted(self.written):
            data = self.written[base_offset]
            for _, header in split(data):
                if header.base_offset < end:
                    marker, epoch = marker_of(data) if header.is_control else (None, -1)
                    state.replay(header, marker, epoch)
        return dict(state.producers)


def append_and_flush(script: Script) -> None:
    script.append()
    script.flush()
    script.append()
    script.append(1)
    script.flush()
    script.append()


def roll_and_flush(script: Script) -> None:
    for number in range(7):
        script.append()
        if number % 3 == 2:
            script.flush()
    script.flush()


def roll_without_flush(script: Script) -> None:
    for _ in range(6):
        script.append()
    script.flush()


def checkpoint_between_appends(script: Script) -> None:
    for _ in range(2):
        script.append()
        script.append()
        script.checkpoint()
    script.append()
    script.flush()


def delete_from_the_front(script: Script) -> None:
    for _ in range(6):
        script.append()
        script.append()
        script.flush()
    script.checkpoint()
    script.delete_before(11)
    script.checkpoint()
    script.append()
    script.flush()


def producers_and_transactions(script: Script) -> None:
    script.append(producer=7)
    script.flush()
    script.append(producer=7, transactional=True)
    script.checkpoint()
    script.end_transaction(7, Marker.ABORT)
    script.append(producer=7)
    script.append()
    script.flush()


def clean_stop(script: Script) -> None:
    script.append()
    script.flush()
    script.append()
    script.close()


def large_batches(script: Script) -> None:
    script.append(1, size=300)
    script.append(1, size=300)
    script.append(2, size=200)
    script.flush()
    script.append(1, size=300)


def commit_and_flush(script: Script) -> None:
    script.make_journal()
    script.append()
    script.commit()
    script.append()
    script.append(1)
    script.commit()
    script.flush()
    script.append()
    script.commit()
    script.append()


def commit_and_roll(script: Script) -> None:
    script.make_journal()
    for _ in range(7):
        script.append(producer=7)
        script.commit()


def commit_and_checkpoint(script: Script) -> None:
    script.make_journal()
    script.append(producer=7, transactional=True)
    script.commit()
    script.checkpoint()
    script.end_transaction(7, Marker.ABORT)
    script.commit()
    script.append(producer=7)
    script.commit()


def commit_until_the_journal_begins_anew(script: Script) -> None:
    script.make_journal()
    for _ in range(18):  # 7 fill a half
        script.append(1, size=5)
        script.commit()


def commit_and_stop(script: Script) -> None:
    script.make_journal()
    script.append()
    script.commit()
    script.append()
    script.close()


COMMITTING = [
    commit_and_flush,
    commit_and_roll,
    commit_and_checkpoint,
    commit_until_the_journal_begins_anew,
    commit_and_stop,
]
SCRIPTS = [
    *COMMITTING,
    append_and_flush,
    roll_and_flush,
    roll_without_flush,
    checkpoint_between_appends,
    delete_from_the_front,
    producers_and_transactions,
    clean_stop,
    large_batches,
]


def batches_of(log: Log) -> dict[int, bytes]:
    found, offset = {}, int(log.start_offset)
    while offset < log.high_watermark:
        damage = next((bad for bad in log.damage if bad.first_offset <= offset <= bad.last_offset), None)
        if damage is not None:
            offset = damage.last_offset + 1
            continue
        piece = log.read(offset, 1 << 20)
        assert piece is not None
        with piece:
            data, offset = piece.read(), piece.next_offset
        found.update({header.base_offset: data[at : at + header.size] for at, header in split(data)})
    return found


def check(script: Script, calls: int, disk: RecordingFiles) -> None:
    high_watermark, start = script.seen_after(calls)
    directory = DataDirectory(disk, DATA, CONFIG)
    log = directory.logs.get(ORDERS)
    if log is None:
        assert high_watermark == 0, "the whole log is gone, although readers had seen it"
        return
    assert log.end_offset >= high_watermark, "readers had seen what is gone"
    assert log.start_offset <= start
    assert not [bad for bad in log.damage if bad.first_offset < high_watermark]
    found = batches_of(log)
    assert all(data == script.written[offset] for offset, data in found.items())
    flushed = [offset for offset in script.written if start <= offset < high_watermark]
    assert set(flushed) <= found.keys(), "a flushed batch is missing"
    if not log.damage:
        assert dict(log.producers.producers) == script.producers_at(log.end_offset)
    log.append(encode_batch([Record(0, 1, b"after", b"the crash")]), 1)
    log.flush()
    assert log.high_watermark == log.end_offset


def check_all(script: Script, calls: int, disks: Iterator[RecordingFiles]) -> None:
    for disk in disks:
        check(script, calls, disk)


def check_every_cut(script: Callable[[Script], None], limit: int, config: LogConfig = CONFIG) -> None:
    recorded = Script(config=config)
    script(recorded)
    for calls in range(len(recorded.files.calls) + 1):
        check_all(recorded, calls, recorded.files.power_cuts(calls, limit=limit, seed=calls))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_no_power_cut_takes_back_what_a_reader_could_see(script: Callable[[Script], None]) -> None:
    check_every_cut(script, limit=60)


@pytest.mark.parametrize("script", COMMITTING, ids=lambda script: script.__name__)
def test_no_power_cut_takes_back_what_is_only_in_the_journal(script: Callable[[Script], None]) -> None:
    check_every_cut(script, limit=60, config=LogConfig(index_interval_bytes=150))


@pytest.mark.crash
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_no_power_cut_of_many_more_takes_back_what_a_reader_could_see(script: Callable[[Script], None]) -> None:
    check_every_cut(script, limit=5000)


@pytest.mark.slow
@pytest.mark.parametrize("script", [roll_without_flush, commit_and_flush], ids=lambda script: script.__name__)
def test_a_power_cut_during_recovery_loses_nothing_either(script: Callable[[Script], None]) -> None:
    recorded = Script()
    script(recorded)
    calls = len(recorded.files.calls) - 3
    for first in recorded.files.power_cuts(calls, limit=20, seed=1):
        DataDirectory(first, DATA, CONFIG)
        for again in range(len(first.calls) + 1):
            for second in first.power_cuts(again, limit=12, seed=again):
                check(recorded, calls, second)


@pytest.mark.parametrize("script", [append_and_flush, commit_and_flush], ids=lambda script: script.__name__)
def test_the_harness_sees_a_loss_where_a_flush_does_nothing(
    script: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Script()
    monkeypatch.setattr("tailrace.testing.recording_files.RecordedFile.sync", lambda self: None)
    script(recorded)
    calls = len(recorded.files.calls)
    with pytest.raises(AssertionError):
        check_all(recorded, calls, recorded.files.power_cuts(calls, limit=60))


def test_the_harness_sees_a_loss_where_nobody_reads_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Script(config=LogConfig())  # without a roll, which would be flushed
    commit_and_flush(recorded)
    calls = len(recorded.files.calls)
    monkeypatch.setattr("tailrace.log.directory.directory.read_journal", lambda *_: [])
    with pytest.raises(AssertionError, match="readers had seen what is gone"):
        check_all(recorded, calls, recorded.files.power_cuts(calls, limit=60))


def test_the_harness_sees_a_loss_where_a_half_is_written_to_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Script(config=LogConfig())
    monkeypatch.setattr("tailrace.log.flush.journal._is_past", lambda *_: True)
    commit_until_the_journal_begins_anew(recorded)
    calls = len(recorded.files.calls)
    with pytest.raises(AssertionError, match=r"readers had seen what is gone|are missing"):
        check_all(recorded, calls, recorded.files.power_cuts(calls, limit=60))
