"""Losses and power cuts at every call: what is gone is in the ledger, once; what is not in the ledger is there.

A broker deletes by age and by size while groups stand in the middle of what goes. After any cut a start finds for every
partition that its cuts cover all offsets before its start, none twice, and for every group that has lost its position
one note that says so.
"""

from itertools import islice

import pytest
from brokers import LocalBroker
from logs import DATA, memory_files

from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.facts import losses
from tailrace.facts.losses import Loss, LossKind
from tailrace.testing.recording_files import RecordingFiles

CONFIGS = {"log.retention.check.interval.ms": "1000", "tailrace.journal.bytes": "65536"}
TOPICS = ("aged", "sized")
GROUPS = {"first": 0, "middle": 2, "later": 3}
SECOND = 1000


class Script:
    def __init__(self) -> None:
        self.memory = memory_files()
        self.broker = LocalBroker(DATA, CONFIGS, files=self.memory)
        self.broker.create_topic("aged", segment_ms="1", retention_ms="4500")
        self.broker.create_topic("sized", segment_ms="1", retention_bytes="250")
        for _ in range(3):
            for topic in TOPICS:
                self.broker.produce(b"x" * 40, topic=topic)
            self.broker.now_ms += SECOND
        self.commit()
        self.broker.tick(0)
        self.deletes_from = len(self.memory.calls)

    def commit(self) -> None:
        groups = self.broker.broker.groups
        groups.tell_time(self.broker.now_ms, self.broker.steady_ms)
        for group, offset in GROUPS.items():
            groups.find_or_make(group)
            value = OffsetCommitValue(offset=offset, commit_timestamp=self.broker.now_ms)
            groups.commit(group, [(topic, 0, value) for topic in TOPICS])
        self.broker.run_jobs()

    def play(self) -> None:
        for _ in range(5):
            for topic in TOPICS:
                self.broker.produce(b"x" * 40, topic=topic)
            self.broker.tick(SECOND)


def found_on(disk: RecordingFiles) -> tuple[dict[str, int], list[Loss]]:
    """The start of each topic, and the ledger, as the next broker has them."""
    with LocalBroker(DATA, CONFIGS, files=disk) as broker:
        starts = {topic: broker.partition(topic).start_offset for topic in TOPICS}
        if broker.broker.topic(LOSSES_TOPIC) is None:
            return starts, []
        return starts, [losses.decode(value) for value in broker.values(LOSSES_TOPIC)]


def check(disk: RecordingFiles) -> None:
    starts, found = found_on(disk)
    for topic, start in starts.items():
        cuts = [(loss.first, loss.last) for loss in found if (loss.topic, loss.kind) == (topic, LossKind.CUT)]
        covered = [offset for first, last in cuts for offset in range(first, last + 1)]
        assert covered == list(range(start)), f"{topic} begins at {start}"
        missed = [(loss.group, loss.first) for loss in found if (loss.topic, loss.kind) == (topic, LossKind.MISSED)]
        assert sorted(missed) == sorted((group, offset) for group, offset in GROUPS.items() if offset < start)


def check_cuts(script: Script, limit: int, step: int = 1) -> None:
    for calls in range(len(script.memory.calls), script.deletes_from, -step):
        for disk in islice(script.memory.power_cuts(calls, limit=limit, seed=calls), limit):
            check(disk)


def test_no_power_cut_loses_or_doubles_a_note() -> None:
    script = Script()
    script.play()
    assert [script.broker.partition(topic).start_offset for topic in TOPICS] == [4, 5]
    check_cuts(script, limit=2, step=3)


def test_no_kill_loses_or_doubles_a_note() -> None:
    """A killed process leaves all that it has written."""
    script = Script()
    script.play()
    disk = memory_files().disk
    for number, call in enumerate(script.memory.calls):
        disk.apply(call)
        if number >= script.deletes_from and call.kind != "sync":
            check(RecordingFiles(disk.copy()))


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_no_power_cut_of_many_more_does() -> None:
    script = Script()
    script.play()
    check_cuts(script, limit=30)


def test_the_harness_sees_files_that_go_before_the_note_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.backlog.ledger.LossLedger.when_flushed", lambda self: None)
    script = Script()
    script.play()
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check_cuts(script, limit=4)


def test_the_harness_sees_a_deletion_that_is_not_finished_by_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.play()
    monkeypatch.setattr("tailrace.broker.startup._finish_deletions", lambda *_: None)
    with pytest.raises(AssertionError):
        check_cuts(script, limit=2)
