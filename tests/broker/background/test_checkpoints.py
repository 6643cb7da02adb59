"""Upkeep: what is done although nobody asks, and that those who ask are told."""

from errno import EIO, ENOSPC
from pathlib import Path

from brokers import LocalBroker, resolved

from tailrace.broker.background.checkpoints import CHECKPOINTS_AT_ONCE, SAVE_OFFSETS_MS
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.testing.faulty_files import FaultyFiles

CHECKPOINT_MS = 60_000  # log.flush.offset.checkpoint.interval.ms, by default


def saved_starts(path: Path) -> str:
    return (path / "log-start-offset-checkpoint").read_text()


def test_what_nobody_asked_for_is_flushed_within_a_second(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        broker.produce(b"a", acks=1)
        broker.tick(500)
        assert broker.log().high_watermark == 0
        broker.tick(600)
        assert broker.log().high_watermark == 1


def test_logs_are_checkpointed_every_minute(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        broker.produce(b"a")
        assert broker.log().recovery_point == 0
        broker.tick(CHECKPOINT_MS - 1)
        assert broker.log().recovery_point == 0
        broker.tick(1)
        assert broker.log().recovery_point == 1
        assert broker.log().is_saved


def test_not_all_of_them_at_once(tmp_path: Path) -> None:
    """Who waits for a flush would stand behind them."""
    with LocalBroker(tmp_path) as broker:
        count = 3 * CHECKPOINTS_AT_ONCE
        broker.create_topic(partitions=count)
        broker.tick()
        for number in range(count):
            broker.produce(b"a", partition=number)
        broker.tick(CHECKPOINT_MS)
        saved = [sum(broker.log(index=number).is_saved for number in range(count))]
        for _ in range(4):
            broker.tick(250)
            saved.append(sum(broker.log(index=number).is_saved for number in range(count)))
        assert 0 < saved[0] <= CHECKPOINTS_AT_ONCE
        assert saved[-1] == count


def test_a_log_that_is_deleted_before_its_turn_is_left_alone(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2 * CHECKPOINTS_AT_ONCE)
        broker.tick()
        for number in range(2 * CHECKPOINTS_AT_ONCE):
            broker.produce(b"a", partition=number)
        broker.tick(CHECKPOINT_MS)
        broker.delete_topic()
        broker.tick(250)
        broker.tick(250)
        assert not list(tmp_path.glob("orders-*"))


def test_offsets_are_saved_every_five_seconds_if_they_moved(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.produce(b"b")
        broker.tick()
        broker.tick(CHECKPOINT_MS)
        broker.tick(SAVE_OFFSETS_MS)
        assert "orders 0 2" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
        files.count.clear()
        broker.tick(SAVE_OFFSETS_MS)
        assert files.count["write_at"] == 0, "nothing has moved"


def test_who_asks_is_told_when_the_offsets_are_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(3):
            broker.produce(b"a")
        broker.log().delete_before(2)
        saved = resolved(broker.broker.checkpointer.when_offsets_saved())
        assert saved == []
        broker.run_jobs()
        assert saved == [None]
        assert "orders 0 2" in saved_starts(tmp_path)


def test_who_asks_while_they_are_being_saved_is_served_by_the_next_job(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(3):
            broker.produce(b"a")
        broker.hold_jobs = True
        first = resolved(broker.broker.checkpointer.when_offsets_saved())
        broker.log().delete_before(2)
        later = [resolved(broker.broker.checkpointer.when_offsets_saved()) for _ in range(2)]
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        assert (first, later) == ([None], [[], []]), "the job began before they asked"
        assert len(broker._jobs) == 1, "one for both"
        broker.run_jobs()
        assert later == [[None], [None]]
        assert "orders 0 2" in saved_starts(tmp_path)


def test_an_error_is_told_and_the_next_one_may_succeed(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        files.fail("rename", EIO, name="log-start-offset")
        failed = resolved(broker.broker.checkpointer.when_offsets_saved())
        broker.run_jobs()
        assert failed[0] is not None
        again = resolved(broker.broker.checkpointer.when_offsets_saved())
        broker.run_jobs()
        assert again == [None]


def test_a_log_that_is_offline_is_not_checkpointed(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic(partitions=2)
        broker.tick()
        for number in (0, 1):
            broker.produce(b"a", partition=number)
        files.fail("sync", EIO, name=".log")
        broker.produce(b"b")
        broker.tick(CHECKPOINT_MS)
        assert broker.log().offline is not None
        assert broker.log(index=1).is_saved


def test_a_topic_deleted_on_a_full_disk_makes_room_and_then_frees_its_name(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.tick()
        files.fail("write_at", ENOSPC, name="checkpoint.tmp", forever=True)
        broker.delete_topic()
        assert not list(tmp_path.glob("orders-*")), "its files are what fills the disk"
        broker.tick(SAVE_OFFSETS_MS)
        assert list(broker.directory.removing), "the offsets on disk would be taken for those of the next log"
        files.heal()
        broker.tick(SAVE_OFFSETS_MS)
        broker.create_topic()
        assert broker.produce(b"b").error_code == 0


def test_a_log_that_could_not_be_renamed_is_removed_later(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.tick()
        files.fail("rename", EIO, name="-delete")
        broker.delete_topic()
        assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-0"]
        broker.tick(SAVE_OFFSETS_MS)
        assert not list(tmp_path.glob("orders-*"))
        assert not broker.directory.removing
