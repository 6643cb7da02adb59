"""The loss ledger: each deletion is noted with the groups that had not read what it took, before any file goes."""

from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest
from backlogs import RECORDS_OF_A_SEGMENT_EACH, commit, delete, fill, noted, short
from brokers import LocalBroker

from tailrace.broker.backlog.ledger import Actor, Extents
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.facts.losses import LossKind, LossReason
from tailrace.log.layout.errors import LogOffline
from tailrace.log.retention import Reason
from tailrace.monitor.figures.losses import join
from tailrace.testing.faulty_files import FaultyFiles

EVERY_SECOND = {"log.retention.check.interval.ms": "1000"}


def test_a_deletion_notes_the_range_and_each_group_that_it_overtakes(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 10)
        for group, offset in (("slow", 3), ("slower", 0), ("level", 5), ("ahead", 8)):
            commit(broker, group, offset)
        topic_id = broker.broker.metadata.topics["orders"].topic_id.hex()
        sizes = [segment.size for segment in broker.log().segments]
        written = [segment.largest_timestamp for segment in broker.log().segments]
        delete(broker, 5)
        found = noted(broker)
        assert short(found) == [("cut", "", 0, 4), ("missed", "slower", 0, 4), ("missed", "slow", 3, 4)]
        assert {(loss.topic, loss.topic_id, loss.partition) for loss in found} == {("orders", topic_id, 0)}
        assert [loss.records for loss in found] == [5, 5, 2]
        assert [loss.size for loss in found] == [sum(sizes[:5]), sum(sizes[:5]), sum(sizes[3:5])]
        assert all(loss.exact and loss.reason is LossReason.AGE for loss in found)
        assert [(loss.oldest, loss.newest) for loss in found[:2]] == [(None, written[4])] * 2
        assert (found[2].oldest, found[2].newest) == (written[2], written[4])
        delete(broker, 7)
        *_, later = [loss for loss in join(noted(broker)) if loss.group == "level"]
        assert (later.oldest, later.newest) == (written[4], written[6]), "not before what was deleted before"


def test_a_group_that_has_fallen_is_noted_once_and_again_when_it_commits(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 10)
        commit(broker, "slow", 2)
        delete(broker, 4)
        delete(broker, 6)
        assert short(noted(broker)) == [("cut", "", 0, 3), ("missed", "slow", 2, 3), ("cut", "", 4, 5)]
        commit(broker, "slow", 3)  # late, of what it had still read
        commit(broker, "slow", 8)
        commit(broker, "slow", 9)
        assert short(noted(broker))[3:] == [("resumed", "slow", 3, 5)]


def test_a_group_that_moves_to_before_the_start_is_noted(tmp_path: Path) -> None:
    """As a client does that goes back to a position of its own, or a copy of offsets from another cluster."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 10)
        commit(broker, "back", 8)
        delete(broker, 6)
        commit(broker, "back", 3)
        commit(broker, "back", 4)
        commit(broker, "new", 5)
        commit(broker, "back", 2)
        delete(broker, 7)
        commit(broker, "back", 9)
        found = noted(broker)
        assert short(found)[1:] == [
            ("missed", "back", 3, 5),
            ("missed", "new", 5, 5),
            ("missed", "back", 2, 5),
            ("cut", "", 6, 6),
            ("resumed", "back", 2, 6),
        ]
        lost = [(loss.group, loss.first, loss.last, loss.reason) for loss in join(found)]
        assert lost == [("back", 2, 6, LossReason.AGE), ("new", 5, 6, LossReason.AGE)]


def test_a_group_that_was_deleted_misses_nothing_more(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 10)
        commit(broker, "slow", 1)
        delete(broker, 4)
        broker.broker.groups.delete("slow", Actor("admin"))
        delete(broker, 6)
        lost = [(loss.group, loss.first, loss.last, loss.reason) for loss in join(noted(broker))]
        assert lost == [("slow", 1, 3, LossReason.AGE), ("slow", 4, 9, LossReason.GROUP_DELETED)]


def test_retention_notes_what_it_deletes_and_why(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        broker.create_topic(retention_ms="5500", **RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 8)
        commit(broker, "slow", 1)
        broker.tick(0)
        broker.tick(1000)
        broker.tick(1000)
        start = int(broker.log().start_offset)
        assert start > 0
        found = noted(broker)
        cuts = [loss for loss in found if loss.kind is LossKind.CUT]
        assert [loss.first for loss in cuts] == [0, *(loss.last + 1 for loss in cuts[:-1])], "without a gap"
        assert cuts[-1].last == start - 1
        assert [(loss.group, loss.first) for loss in found if loss.kind is not LossKind.CUT] == [("slow", 1)]
        assert {loss.reason for loss in found} == {LossReason.AGE}


def test_internal_topics_are_not_noted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("__tailrace_lag", **RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4, "__tailrace_lag")
        broker.broker.retention.delete(broker.partition("__tailrace_lag"), 2, Reason.AGE, broker.now_ms)
        assert noted(broker) == []
        assert broker.log("__tailrace_lag").start_offset == 2


def test_a_deleted_topic_is_a_loss_of_its_groups(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 4)
        commit(broker, "slow", 1)
        commit(broker, "done", 4)
        broker.delete_topic()
        found = noted(broker)
        assert short(found) == [("cut", "", 0, 3), ("missed", "slow", 1, 3)]
        assert {loss.reason for loss in found} == {LossReason.TOPIC_DELETED}


# Faults


def test_nothing_is_deleted_while_the_ledger_takes_no_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tailrace.broker.backlog.ledger import NotRecorded
    from tailrace.log.disk.os_files import OperatingSystemFiles

    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        delete(broker, 1)
        broker.run_jobs()
        broker.broker.ledger._topic.append = _refuse(broker.broker.ledger._topic.append)  # type: ignore[method-assign,assignment]
        with pytest.raises(NotRecorded):
            delete(broker, 3)
        with pytest.raises(NotRecorded):
            delete(broker, 3)
        assert broker.log().start_offset == 1
        assert caplog.text.count("no messages are deleted") == 1


def _refuse(_: Callable[..., object]) -> Callable[..., object]:
    from tailrace.log.layout.errors import StorageError

    def append(*arguments: object) -> object:
        raise StorageError("the disk failed", OSError(EIO, "Input/output error"))

    return append


def test_a_ledger_that_goes_offline_stops_the_broker(tmp_path: Path) -> None:
    from tailrace.log.disk.os_files import OperatingSystemFiles

    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": "0"}, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        delete(broker, 1)
        broker.run_jobs()
        assert broker.broker.failure is None
        files.fail("sync", EIO, name=".log")
        delete(broker, 3)
        with pytest.raises(LogOffline):
            broker.run_jobs()
        assert broker.broker.failure is not None
        assert (tmp_path / "orders-0" / f"{1:020d}.log").exists(), "its loss is not on disk"


def test_files_stay_until_the_note_is_flushed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        broker.hold_jobs = True
        delete(broker, 3)
        saved = broker.broker.checkpointer.when_offsets_saved()
        while broker._jobs:  # all but flushes
            job, finish = broker._jobs.popleft()
            job.run()
            finish()
        assert not saved.is_resolved
        assert (tmp_path / "orders-0" / f"{0:020d}.log").exists()
        broker.hold_jobs = False
        broker.run_jobs()
        assert saved.is_resolved
        assert not (tmp_path / "orders-0" / f"{0:020d}.log").exists()


def test_a_deletion_interrupted_after_its_note_is_finished_by_the_next_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        commit(broker, "slow", 1)
        broker.hold_jobs = True
        delete(broker, 3)
        broker.run_flushes()  # the note, and not the new start
        broker.hold_jobs = False
        broker._jobs.clear()
        broker.kill()
        assert broker.log().start_offset == 3
        broker.tick()
        assert short(noted(broker)) == [("cut", "", 0, 2), ("missed", "slow", 1, 2)]
        broker.restart()
        assert broker.log().start_offset == 3


def test_a_range_takes_a_look_at_its_own_segments_alone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(segment_ms="1")
        for number in range(8):
            broker.produce(*[b"x" * (number + 1)] * 3)
            broker.now_ms += 1000
        partition = broker.partition()
        for first in range(-1, 24):
            for before in range(max(1, first + 1), 25):
                narrow = Extents(partition, first, before)
                assert narrow.of(first) == Extents(partition, 0, before).of(first)
                assert len(narrow._segments) <= (before - max(0, first)) // 3 + 3


def test_a_hundred_thousand_groups_cost_a_deletion_nothing(tmp_path: Path) -> None:
    """Only those that are overtaken are looked at."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        offsets = broker.broker.groups.offsets
        looked_at: list[str] = []

        class Counted(str):
            def __lt__(self, other: str) -> bool:
                looked_at.append(self)
                return str(self) < str(other)

        for number in range(2000):
            offsets.set(Counted(f"group-{number}"), "orders", 0, OffsetCommitValue(offset=5), 0)
        offsets.set("slow", "orders", 0, OffsetCommitValue(offset=1), 0)
        looked_at.clear()
        delete(broker, 3)
        assert len(looked_at) < 100
        assert short(noted(broker)) == [("cut", "", 0, 2), ("missed", "slow", 1, 2)]


def test_kinds_are_those_of_the_format() -> None:
    assert {kind.value for kind in LossKind} == {"cut", "missed", "resumed", "skipped"}
