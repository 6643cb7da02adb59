"""A start on a full disk: everything can be read, appends are refused with a retriable error, and as soon as there is
room they are taken, without a restart.
"""

import logging
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, a_batch, only_partition, produce_request
from group_requests import commit, offsets

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import LogOffline, OutOfSpace, StorageError
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import verify
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import split
from tailrace.testing.faulty_files import FaultyFiles

FULL = ("write_at", "open", "make_directory")


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(OperatingSystemFiles())


@pytest.fixture
def broker(tmp_path: Path, files: FaultyFiles) -> LocalBroker:
    """With a partition that has records, and one that has nothing on disk yet."""
    broker = LocalBroker(tmp_path / "data", {"tailrace.disk.reserve.bytes": "0"}, files=files)
    broker.create_topic("orders", 2)
    broker.produce(b"one", b"two")
    commit(broker, 1)
    return broker


def fill(files: FaultyFiles, kinds: tuple[str, ...] = FULL) -> None:
    for kind in kinds:
        files.fail(kind, ENOSPC, forever=True)


def test_a_killed_broker_starts_read_only_on_a_full_disk_until_there_is_room(
    broker: LocalBroker, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = broker.broker.metadata.leader_epoch
    fill(files)
    for _ in range(2):  # also after a second kill
        caplog.clear()
        broker.kill()
        assert broker.values() == [b"one", b"two"]
        assert offsets(broker) == {("orders", 0): 1}
        for partition in (0, 1):
            assert broker.produce(b"refused", partition=partition).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(OutOfSpace):
            broker.create_topic("refused")
        broker.tick(60_000)
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert [line for line in said if "read-only" in line] == said[:1]
        assert all(log.offline is None for log in broker.directory.logs.values())
    files.heal()
    assert broker.produce(b"three").error_code == ErrorCode.NONE
    assert broker.produce(b"other", partition=1).error_code == ErrorCode.NONE
    commit(broker, 3)
    broker.create_topic("taken")
    assert broker.broker.metadata.leader_epoch == epoch + 1, "starts that appended nothing count as one"
    assert caplog.messages.count("the disk has room again: appends are accepted") == 1
    check_epochs(broker)
    broker.kill()
    assert (broker.values(), broker.values(partition=1)) == ([b"one", b"two", b"three"], [b"other"])
    assert offsets(broker) == {("orders", 0): 3}
    assert broker.broker.metadata.leader_epoch == epoch + 2
    assert "taken" in broker.broker.metadata.topics
    assert "refused" not in broker.broker.metadata.topics
    assert not any(report.damage or report.truncation for report in broker.directory.reports.values())
    broker.close()


def check_epochs(broker: LocalBroker) -> None:
    """What was appended after the start has an epoch that what was there before has not."""
    log = broker.log()
    data = Path(log.directory, f"{0:020d}.log").read_bytes()
    first, last = (header.leader_epoch for _, header in split(data))
    assert first < broker.broker.metadata.leader_epoch <= last == log.epochs.latest


@pytest.mark.parametrize("kind", FULL)
def test_a_disk_that_has_no_room_for_one_kind_of_thing_is_a_full_disk(
    broker: LocalBroker, files: FaultyFiles, kind: str
) -> None:
    fill(files, (kind,))
    broker.kill()
    assert broker.values() == [b"one", b"two"]
    files.heal()
    assert broker.produce(b"three").error_code == ErrorCode.NONE
    broker.restart()
    assert broker.values() == [b"one", b"two", b"three"]
    broker.close()


def test_the_record_of_the_start_comes_before_the_first_topic_after_a_full_disk(
    broker: LocalBroker, files: FaultyFiles
) -> None:
    fill(files)
    broker.kill()
    files.heal()
    broker.create_topic("taken")
    broker.kill()
    assert "taken" in broker.broker.metadata.topics
    assert broker.broker.metadata.unclean_starts == 2
    broker.close()


def test_an_append_during_the_flush_of_the_metadata_log_gets_a_retriable_error(
    broker: LocalBroker, files: FaultyFiles
) -> None:
    fill(files)
    broker.kill()
    files.heal()
    flush = broker.broker.metadata_log.log.begin_checkpoint(None)
    answers: list[Any] = []
    broker.begin(produce_request(a_batch(b"refused")), 12).when_resolved(answers.append)
    flush.run()
    save = flush.finish()
    assert save is not None
    save.run()
    save.finish()
    broker.run_jobs()
    assert only_partition(answers[0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce(b"three").error_code == ErrorCode.NONE
    broker.directory.abandon()
    broker.open()
    assert broker.broker.metadata.unclean_starts == 2
    assert broker.values() == [b"one", b"two", b"three"]
    broker.close()


def test_a_torn_end_that_there_is_no_room_to_keep_aside_is_cut_off_when_there_is(
    broker: LocalBroker, files: FaultyFiles
) -> None:
    directory = Path(broker.log().directory)
    segment = directory / f"{0:020d}.log"
    whole, torn = segment.read_bytes(), bytes(a_batch(b"never acknowledged"))[:-5]
    broker.directory.abandon()
    segment.write_bytes(whole + torn)
    fill(files)
    for _ in range(2):
        broker.open()
        assert broker.values() == [b"one", b"two"]
        for _ in range(3):
            assert broker.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.tick(60_000)
        assert segment.read_bytes() == whole + torn
        assert list(directory.glob("*.cut*")) == []
        broker.directory.abandon()
    broker.open()
    files.heal()
    assert broker.produce(b"three").error_code == ErrorCode.NONE
    (kept,) = directory.glob("*.cut*")
    assert kept.read_bytes() == torn
    broker.restart()
    assert broker.directory.was_clean
    assert broker.values() == [b"one", b"two", b"three"]
    verified = verify(files, locate(files, broker.path))
    assert verified.healthy
    assert not verified.tail
    broker.close()


def test_a_broker_that_was_stopped_starts_on_a_full_disk(broker: LocalBroker, files: FaultyFiles) -> None:
    broker.close()
    fill(files)
    broker.open()
    assert broker.values() == [b"one", b"two"]
    assert broker.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    files.heal()
    assert broker.produce(b"three").error_code == ErrorCode.NONE
    broker.restart()
    assert broker.values() == [b"one", b"two", b"three"]
    broker.close()


@pytest.mark.parametrize("has_topics", [True, False])
def test_a_stop_when_there_is_room_records_the_start_and_is_clean(
    tmp_path: Path, files: FaultyFiles, has_topics: bool
) -> None:
    broker = LocalBroker(tmp_path / "data", files=files)
    if has_topics:
        broker.create_topic()
        broker.produce(b"one")
    fill(files)
    broker.kill()
    files.heal()
    broker.restart()
    assert broker.directory.was_clean
    assert broker.broker.metadata.unclean_starts == 1
    assert all(log.epochs.latest >= 1 for log in broker.directory.logs.values())
    broker.close()


@pytest.mark.parametrize("has_topics", [True, False])
def test_a_stop_on_a_disk_that_is_still_full_is_not_clean(tmp_path: Path, files: FaultyFiles, has_topics: bool) -> None:
    broker = LocalBroker(tmp_path / "data", files=files)
    if has_topics:
        broker.create_topic()
        broker.produce(b"one")
    fill(files)
    broker.kill()
    with pytest.raises(OutOfSpace):
        broker.close()
    broker.open()
    files.heal()
    files.fail("write_at", ENOSPC, name=".log", forever=True)  # there is room for everything but records
    broker.close()
    files.heal()
    broker.open()
    assert not broker.directory.was_clean
    assert broker.broker.metadata.unclean_starts == 1
    broker.close()


def test_a_new_broker_does_not_start_on_a_full_disk_and_names_the_file(tmp_path: Path, files: FaultyFiles) -> None:
    fill(files, ("write_at",))
    with pytest.raises(StorageError, match=r"tailrace\.format\.tmp: No space left on device"):
        LocalBroker(tmp_path / "data", files=files)


def test_an_epoch_that_the_disk_refuses_when_there_is_room_takes_the_log_offline(
    broker: LocalBroker, files: FaultyFiles
) -> None:
    fill(files)
    broker.kill()
    files.heal()
    files.fail("rename", EIO, name="leader-epoch-checkpoint")
    assert broker.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(broker.log().offline, LogOffline)
    broker.directory.abandon()
