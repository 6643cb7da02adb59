"""Retention with power cuts at every call, and disks that refuse any: what is left is whole, and begins where it says.

A broker deletes by age, by size and by budget, empties a topic and goes on in it. After any cut the log begins at an
offset that was its start at some time, ends where its readers saw it end or later, and every record between is there.
"""

from errno import EIO, ENOSPC
from itertools import islice

import pytest
from brokers import LocalBroker, a_batch, only_partition, produce_request, resolved
from logs import DATA, memory_files

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

CONFIGS = {"log.retention.check.interval.ms": "1000"}
SECOND = 1000
NAMES = {topic: TopicPartition(topic, 0) for topic in ("aged", "sized", "old")}


class Script:
    """A broker whose topics are deleted from, and what could be seen of their logs after which call."""

    def __init__(self) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.broker = LocalBroker(DATA, CONFIGS, files=self.files)
        self.broker.create_topic("aged", segment_ms="1", retention_ms="4000")
        self.broker.create_topic("sized", segment_ms="1", retention_bytes="250")
        self.broker.create_topic("old", segment_ms="1")
        self.seen: list[tuple[int, dict[str, tuple[int, int]]]] = []
        self.sequences = dict.fromkeys(NAMES, 0)
        self.broker.tick(0)
        self.note()

    def note(self) -> None:
        logs = self.broker.directory.logs
        bounds = {
            topic: (int(logs[name].start_offset), int(logs[name].high_watermark)) if name in logs else (0, 0)
            for topic, name in NAMES.items()
        }
        self.seen.append((len(self.memory.calls), bounds))

    def produce(self, topic: str) -> None:
        sequence = self.sequences[topic]
        data = a_batch(b"x" * 40, now_ms=self.broker.now_ms, producer_id=7, producer_epoch=0, base_sequence=sequence)
        begun = self.broker.begin(produce_request(data, topic), 12)
        answers = resolved(begun) if isinstance(begun, DelayedResponse) else [begun]
        self.broker.run_jobs()
        if not answers:  # there was no room for what stands beside a new log: a flush is tried again after a second
            self.broker.tick(SECOND)
        if not only_partition(answers[0]).error_code:
            self.sequences[topic] += 1
        self.note()

    def tick(self, ms: int) -> None:
        self.broker.tick(ms)
        self.note()

    def play(self) -> None:
        for _ in range(4):
            for topic in NAMES:
                self.produce(topic)
            self.tick(SECOND)
        self.deletes_from = len(self.memory.calls)
        self.broker.broker.configs.at_start["tailrace.disk.budget.bytes"] = "0"
        self.broker.broker.metadata.revision += 1
        for _ in range(5):
            self.tick(SECOND)
        for topic in NAMES:
            self.produce(topic)

    def bounds_after(self, calls: int, topic: str) -> tuple[int, int]:
        """The largest start that was asked for by then, and the high watermark that a reader may have seen."""
        past = [bounds[topic] for after, bounds in self.seen if after <= calls]
        following = [bounds[topic] for after, bounds in self.seen if after > calls][:1]
        return max(start for start, _ in past + following), past[-1][1]


def check(script: Script, calls: int, disk: RecordingFiles) -> None:
    directory = DataDirectory(disk, DATA)
    assert not any(report.damage for report in directory.reports.values())
    for topic, name in NAMES.items():
        log = directory.logs.get(name)
        start, high_watermark = script.bounds_after(calls, topic)
        if log is None:
            assert high_watermark == 0, f"{topic} is gone"
            continue
        assert log.start_offset <= start
        assert log.end_offset >= high_watermark
        offset = int(log.start_offset)
        while offset < log.high_watermark:
            piece = log.read(offset, 1)
            assert piece is not None
            offset = piece.next_offset
            piece.release()
        producer = log.producers.producers.get(7)
        assert log.end_offset == 0 or producer is not None, "its last batch is not known"
        assert producer is None or producer.batches[-1].last_offset == log.end_offset - 1


def check_cuts(script: Script, limit: int, step: int = 1) -> None:
    """After every call since deletions began, or some of them."""
    for calls in range(len(script.memory.calls), script.deletes_from, -step):
        for disk in islice(script.memory.power_cuts(calls, limit=limit, seed=calls), limit):
            check(script, calls, disk)


def test_no_power_cut_leaves_a_log_that_begins_where_it_does_not_say() -> None:
    script = Script()
    script.play()
    assert [bounds[1] for bounds in script.seen[-1][1].items()] == [(4, 5), (3, 5), (3, 5)]
    check_cuts(script, limit=2, step=3)


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_no_power_cut_of_many_more_does() -> None:
    script = Script()
    script.play()
    check_cuts(script, limit=30)


def test_the_harness_sees_a_start_that_is_not_saved_before_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    monkeypatch.setattr("tailrace.log.directory.offset_checkpoints.OffsetCheckpoints.save", lambda *_: None)
    script.play()
    monkeypatch.undo()
    with pytest.raises((AssertionError, LogError)):
        check_cuts(script, limit=2)


KINDS = ("write_at", "sync", "open", "rename", "remove", "sync_directory")


def calls_of(kind: str) -> int:
    script = Script()
    script.files.count.clear()
    script.play()
    return script.files.count[kind]


def play_with_an_error(kind: str, error: int, number: int) -> None:
    script = Script()
    script.files.fail(kind, error, after=number)
    try:
        script.play()
    except LogError:  # of the metadata: the broker ends
        assert script.broker.broker.failure is not None
    script.files.heal()
    check(script, len(script.memory.calls), RecordingFiles(script.memory.disk.copy()))


@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_refuses_a_call_of_retention_leaves_a_whole_log(kind: str, error: int) -> None:
    count = calls_of(kind)
    for number in range(0, count, max(1, count // 5)):
        play_with_an_error(kind, error, number)


@pytest.mark.crash
@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_refuses_any_call_of_retention_leaves_a_whole_log(kind: str, error: int) -> None:
    for number in range(calls_of(kind)):
        play_with_an_error(kind, error, number)
