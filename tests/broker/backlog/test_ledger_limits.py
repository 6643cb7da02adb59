"""The loss ledger where much is lost at once, the disk is full, or a crash comes between a note and its deletion."""

from errno import EIO, ENOSPC
from pathlib import Path

import pytest
from backlogs import RECORDS_OF_A_SEGMENT_EACH, delete, fill, noted, short
from brokers import LocalBroker

from tailrace.broker.background import retention
from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.facts.losses import LossKind, LossReason
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.testing.faulty_files import FaultyFiles

MANY_GROUPS = 4000  # their notes take more than a segment of the ledger


def add_groups(broker: LocalBroker, count: int, offset: int, topic: str = "orders") -> None:
    offsets = broker.broker.groups.offsets
    for number in range(count):
        offsets.set(f"group-{number}", topic, 0, OffsetCommitValue(offset=offset), 0)


def all_noted(broker: LocalBroker) -> list[tuple[str, str, int, int]]:
    from tailrace.broker.metadata.internal_topics import records_of
    from tailrace.facts import losses

    broker.run_jobs()
    return short([losses.decode(record.value or b"") for record in records_of(broker.log(LOSSES_TOPIC))])


def test_a_deletion_that_overtakes_more_groups_than_fit_into_a_segment_is_noted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        add_groups(broker, MANY_GROUPS, 1)
        delete(broker, 3)
        assert broker.log().start_offset == 3
        found = all_noted(broker)
        assert found.count(("cut", "", 0, 2)) == 1
        assert len(set(found)) == len(found) == MANY_GROUPS + 1


def test_retention_notes_what_many_partitions_lose_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each deletion overtakes ten groups: one of them is enough for a tick."""
    monkeypatch.setattr(retention, "NOTES_AT_ONCE", 5)
    with LocalBroker(tmp_path, {"log.retention.check.interval.ms": "1000"}) as broker:
        for name in ("a", "b", "c"):
            broker.create_topic(name, retention_ms="10000", **RECORDS_OF_A_SEGMENT_EACH)
            fill(broker, 3, topic=name)
            add_groups(broker, 10, 1, topic=name)
        broker.tick(0)
        noted_by_tick = []
        for ms in (15_000, 50, 50, 50, 50):
            before = broker.broker.ledger.noted
            broker.tick(ms)
            noted_by_tick.append(broker.broker.ledger.noted - before)
        assert noted_by_tick == [0, 11, 11, 11, 0]  # with the first tick, the active segments are rolled


def test_a_topic_with_more_partitions_than_fit_into_a_segment_is_noted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 2)
        add_groups(broker, MANY_GROUPS, 1)
        broker.delete_topic()
        assert len(all_noted(broker)) == MANY_GROUPS + 1


def test_notes_that_found_the_disk_full_are_written_however_many_they_are(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        delete(broker, 1)
        broker.run_jobs()
        add_groups(broker, MANY_GROUPS, 2)
        files.fail("write_at", ENOSPC, name=".log", forever=True)
        delete(broker, 3)
        delete(broker, 4)
        files.heal()
        for _ in range(100):
            broker.tick(250)
        found = all_noted(broker)
        assert [note for note in found if note[0] == "cut"] == [("cut", "", 0, 0), ("cut", "", 1, 2), ("cut", "", 3, 3)]
        assert len(set(found)) == len(found) == MANY_GROUPS + 3


def test_interrupted_deletions_are_finished_however_much_was_noted_after_them(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        for topic in ("a", "b", "c", "d"):
            broker.create_topic(topic, **RECORDS_OF_A_SEGMENT_EACH)
            fill(broker, 4, topic)
            add_groups(broker, MANY_GROUPS, 1, topic)
        broker.hold_jobs = True
        for topic in ("a", "b", "c", "d"):
            delete(broker, 3, topic=topic)
        broker.run_flushes()  # the notes, and not the new starts
        broker.hold_jobs = False
        broker._jobs.clear()
        broker.kill()
        assert {topic: int(broker.log(topic).start_offset) for topic in ("a", "b", "c", "d")} == dict.fromkeys(
            "abcd", 3
        )


def test_a_deletion_of_a_topic_that_a_kill_interrupts_is_noted_once(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 3)
        broker.hold_jobs = True
        broker.delete_topic()
        broker.run_flushes()  # the note; the directory still has its name
        broker.hold_jobs = False
        broker.kill()
        assert short(noted(broker)) == [("cut", "", 0, 2)]


def test_a_start_removes_a_log_of_a_deleted_topic_when_that_is_noted(tmp_path: Path) -> None:
    from tailrace.broker.metadata.topic_changes import delete_topic

    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 3)
        broker.broker.metadata_log.write([delete_topic(broker.broker.metadata.topics["orders"])], broker.now_ms)
        broker.run_flushes()
        broker._jobs.clear()
        broker.directory.abandon()
        run_jobs, broker.run_jobs = broker.run_jobs, lambda: None  # type: ignore[method-assign]
        broker.open()
        broker.run_jobs = run_jobs  # type: ignore[method-assign]
        while broker._jobs:  # all but flushes
            job, finish = broker._jobs.popleft()
            job.run()
            finish()
        assert (tmp_path / "orders-0").exists()
        found = noted(broker)
        assert [(loss.kind, loss.reason, loss.last) for loss in found] == [(LossKind.CUT, LossReason.TOPIC_DELETED, 2)]
        assert not (tmp_path / "orders-0").exists()


def test_deletions_make_room_where_there_is_none_to_flush_the_first_note(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4)
        files.fail("write_at", ENOSPC, name="leader-epoch-checkpoint", forever=True)  # of the ledger, which is new
        delete(broker, 2)
        saved = broker.broker.checkpointer.when_offsets_saved()
        for _ in range(10):
            broker.tick(1000)
        assert not (tmp_path / "orders-0" / f"{0:020d}.log").exists()
        assert saved.is_resolved
        files.heal()


def test_a_loss_is_noted_after_a_request_that_has_made_all_logs_it_may(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        fill(broker, 2)
        broker.broker._may_make = 0
        broker.delete_topic()
        assert short(noted(broker)) == [("cut", "", 0, 1)]


def test_a_stop_writes_the_notes_that_found_the_disk_full(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 6)
        delete(broker, 1)
        broker.run_jobs()
        files.fail("write_at", ENOSPC, name=".log", forever=True)
        for before in range(2, 5):
            delete(broker, before)
        broker.broker.ledger.close(broker.now_ms)
        files.heal()
        broker.broker.ledger.close(broker.now_ms)
        broker.restart()
        assert short(noted(broker)) == [("cut", "", offset, offset) for offset in range(4)]


def test_a_removal_that_is_tried_again_saves_no_start_before_its_note_is_on_disk(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4)
        broker.create_topic("gone")
        fill(broker, 1, "gone")
        files.fail("rename", EIO, name="gone-0")
        broker.delete_topic("gone")
        assert broker.directory.failed_removals
        files.heal()
        broker.tick()
        broker.hold_jobs = True
        delete(broker, 3)
        broker.tick(10_000)
        while broker._jobs:  # all but flushes
            job, finish = broker._jobs.popleft()
            job.run()
            finish()
        assert "orders 0 3" not in (tmp_path / "log-start-offset-checkpoint").read_text()
        broker.hold_jobs = False
        broker.run_jobs()
        broker.tick(10_000)
        assert not broker.directory.failed_removals
        assert "orders 0 3" in (tmp_path / "log-start-offset-checkpoint").read_text()
