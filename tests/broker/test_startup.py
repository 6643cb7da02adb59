"""Opening a broker: whose directory it is, whose logs are in it, and what an unclean stop leaves behind."""

import shutil
from errno import EIO
from pathlib import Path

import pytest
from brokers import LocalBroker, a_batch, produce_request

from tailrace.broker.metadata.records import UnknownRecord
from tailrace.broker.metadata.topic_changes import delete_topic
from tailrace.broker.startup import NotOurs
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import Damaged
from tailrace.log.layout.names import TopicPartition
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles


def directories(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()}


def test_a_log_whose_creation_was_cut_short_does_not_go_back_to_an_earlier_epoch(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(2):
            broker.kill()
        epoch = broker.broker.metadata.leader_epoch
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"never flushed"), acks=1), 9)
        (tmp_path / "orders-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
        broker.hold_jobs = False
        broker.kill()
        assert broker.broker.leader_epoch(broker.partition()) > epoch


def test_a_new_directory_becomes_a_cluster_with_a_name_for_ever(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        name = broker.broker.metadata.cluster_id
        assert len(name) == 22, "as Kafka's: a uuid in base 64"
        for start in ("restart", "kill"):
            getattr(broker, start)()
            assert broker.broker.metadata.cluster_id == name
    with LocalBroker(tmp_path / "another", seed=1) as other:
        assert other.broker.metadata.cluster_id != name


def test_a_crash_before_the_first_flush_begins_anew(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        assert broker.broker.metadata.unclean_starts == 0
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).unlink()
    log = next((tmp_path / "__tailrace_metadata-0").glob("*.log"))
    for file in log.parent.iterdir():
        if file.name not in (log.name, "partition.metadata"):
            file.unlink()
    log.write_bytes(b"")
    with LocalBroker(tmp_path) as broker:
        assert broker.broker.metadata.cluster_id
        assert set(broker.broker.metadata.topics) == {"__tailrace_metadata"}


def test_an_unclean_start_raises_the_leader_epoch_of_what_is_appended(tmp_path: Path) -> None:
    """Design 5: in logs that are there, and in those to come."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"a")
        broker.restart()
        assert broker.log().leader_epoch == 0
        broker.kill()
        broker.produce(b"b", partition=1)
        for number in (0, 1):
            assert broker.log(index=number).leader_epoch == 1
        broker.restart()
        assert [broker.log(index=number).leader_epoch for number in (0, 1)] == [1, 1]
        assert broker.broker.metadata.leader_epoch == 1


def test_logs_that_nobody_knows_are_set_aside_with_all_that_is_in_them(tmp_path: Path) -> None:
    """Design 3: never deleted."""
    with LocalBroker(tmp_path / "theirs", seed=1) as other:
        other.create_topic("strange")
        other.produce(b"precious", topic="strange")
    with LocalBroker(tmp_path / "ours") as broker:
        broker.create_topic()
        broker.produce(b"a")
    shutil.copytree(tmp_path / "theirs" / "strange-0", tmp_path / "ours" / "strange-0")
    shutil.copytree(tmp_path / "theirs" / "strange-0", tmp_path / "ours" / "orders-7")
    with LocalBroker(tmp_path / "ours") as broker:
        assert broker.values() == [b"a"]
        assert "strange" not in broker.broker.metadata.topics
        stray = [name for name in directories(tmp_path / "ours") if name.endswith("-stray")]
        assert sorted(name.partition(".")[0] for name in stray) == ["orders-7", "strange-0"]
        for name in stray:
            assert b"precious" in next((tmp_path / "ours" / name).glob("*.log")).read_bytes()
        broker.create_topic("strange")
        assert broker.produce(b"new", topic="strange").base_offset == 0


def test_a_log_of_another_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    """Pitfall 11: the id tells."""
    with LocalBroker(tmp_path / "theirs", seed=1) as other:
        other.create_topic()
        other.produce(b"theirs")
    with LocalBroker(tmp_path / "ours") as broker:
        broker.create_topic()
    shutil.copytree(tmp_path / "theirs" / "orders-0", tmp_path / "ours" / "orders-0")
    with LocalBroker(tmp_path / "ours") as broker:
        assert broker.values() == []
        assert any(name.endswith("-stray") for name in directories(tmp_path / "ours"))


def test_logs_of_topics_that_were_deleted_are_removed(tmp_path: Path) -> None:
    """A crash between the deletion and its work."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.create_topic("kept")
        for topic in ("orders", "kept"):
            broker.produce(b"a", topic=topic)
        topic_of = broker.broker.metadata.topics["orders"]
        broker.broker.metadata_log.write([delete_topic(topic_of)], broker.now_ms)
        broker.run_flushes()
        broker.kill()
        assert directories(tmp_path) == {"__tailrace_metadata-0", "__tailrace_losses-0", "kept-0"}
        assert TopicPartition("orders", 0) not in broker.directory.logs
        assert broker.values("kept") == [b"a"]


def test_what_was_left_of_removed_logs_is_deleted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        broker.delete_topic()
        broker.run_flushes()  # of the loss ledger
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        assert any(name.endswith("-delete") for name in directories(tmp_path))
        broker.hold_jobs = False
        broker.kill()
        assert directories(tmp_path) == {"__tailrace_metadata-0", "__tailrace_losses-0"}


@pytest.mark.parametrize("when", ["at once", "at the next start"])
def test_a_directory_that_cannot_be_deleted_is_only_reported(
    tmp_path: Path, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.create_topic()
        broker.produce(b"a")
        files.fail("remove_directory", EIO, forever=True)
        broker.delete_topic()
        if when == "at the next start":
            caplog.clear()
            broker.kill()
        assert "cannot delete" in caplog.text
        files.heal()
        broker.kill()
        assert directories(tmp_path) == {"__tailrace_metadata-0", "__tailrace_losses-0"}


def test_logs_without_a_metadata_log_are_not_ours(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
    shutil.rmtree(tmp_path / "__tailrace_metadata-0")
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).unlink()
    with pytest.raises(NotOurs, match="orders-0"):
        LocalBroker(tmp_path)
    assert (tmp_path / "orders-0").exists(), "nothing was touched"
    assert not (tmp_path / "__tailrace_metadata-0").exists()


def test_a_metadata_log_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        unknown = encode_batch([Record(0, broker.now_ms, b"\x70\0\0\0", b"news")])
        broker.broker.metadata_log.log.append(unknown, broker.now_ms)
    with pytest.raises(UnknownRecord):
        LocalBroker(tmp_path)


def test_a_damaged_metadata_log_is_refused(tmp_path: Path) -> None:
    """Design 9: what cannot be read is not skipped."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("a")
        broker.create_topic("b")
    log = next((tmp_path / "__tailrace_metadata-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(Damaged):
        LocalBroker(tmp_path)


def test_configs_of_topics_hold_after_a_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(max_message_bytes="200")
        broker.produce(b"a")
        broker.restart()
        too_large = produce_request(a_batch(b"x" * 300))
        assert broker.ask(too_large, 9).responses[0].partition_responses[0].error_code == 10


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        for number in range(30):
            broker.produce(b"%d" % number, partition=number % 3)
        broker.kill()
        for partition in range(3):
            assert broker.values(partition=partition) == [b"%d" % number for number in range(partition, 30, 3)]
