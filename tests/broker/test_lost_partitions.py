"""Partitions that a checkpoint names and the disk lacks, and logs whose `partition.metadata` is lost."""

import logging
import shutil
from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest
from brokers import NOW_MS, LocalBroker, a_batch, from_offset, produce_request

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.startup import open_broker
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, decode_offsets, encode_offsets
from tailrace.log.files.directory_state import UNSAVED_OFFSETS_MAX
from tailrace.log.layout.errors import LogError, LogUnavailable
from tailrace.log.layout.names import REMOVED, TopicPartition, put_away_name
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.log.tools.verify import verify
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.testing.faulty_files import FaultyFiles

ORDERS = TopicPartition("orders", 0)
METADATA = "__tailrace_metadata-0"
LOST = ErrorCode.KAFKA_STORAGE_ERROR


def stopped(path: Path, *, values: int = 5) -> None:
    """A directory with `orders-0`, of so many records, and `kept-0`, after a clean stop."""
    with LocalBroker(path) as broker:
        for topic in ("orders", "kept"):
            broker.create_topic(topic)
            for number in range(values):
                broker.produce(b"%d" % number, topic=topic)


def repair(path: Path) -> None:
    files = OperatingSystemFiles()
    carry_out(files, make_plan(files, locate(files, str(path))), str(path), "2026-11-18T12:00:00+00:00")


def is_healthy(path: Path) -> bool:
    files = OperatingSystemFiles()
    return verify(files, locate(files, str(path))).healthy


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def remove_segments(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


def refuses_to_start(path: Path) -> None:
    with pytest.raises(LogError, match=r"gone|cannot (be )?read"):
        start(path)


def start(path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(path))
    try:
        open_broker(
            directory, BrokerConfigs({}), NOW_MS, start_job=lambda job, finish: None, random_bytes=lambda n: bytes(n)
        )
    finally:
        directory.abandon()


LOSSES = pytest.mark.parametrize("lose", [remove_directory, remove_segments])


@LOSSES
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_lost_partition_is_offline_until_it_is_given_up(
    tmp_path: Path, lose: Callable[[Path], None], stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path)
    if stop == "kill":
        (tmp_path / ".kafka_cleanshutdown").unlink()
    lose(tmp_path / "orders-0")
    assert not is_healthy(tmp_path)
    for _ in range(2):
        caplog.clear()
        with LocalBroker(tmp_path) as broker:
            errors = [record for record in caplog.records if record.levelno == logging.ERROR]
            assert len(errors) == 1
            assert "orders-0" in errors[0].getMessage()
            assert "--accept-loss" in errors[0].getMessage()
            assert produced_error(broker) == LOST
            assert broker.values("kept")[:5] == [b"0", b"1", b"2", b"3", b"4"]
            broker.produce(b"more", topic="kept")
            broker.directory.checkpoint(broker.now_ms)
            assert decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes())[ORDERS] == 5
    repair(tmp_path)
    assert is_healthy(tmp_path)
    start = 5 if stop == "clean" else 5 + UNSAVED_OFFSETS_MAX
    with LocalBroker(tmp_path) as broker:
        assert broker.produce(b"new").base_offset == start
        assert broker.values(offset=start) == [b"new"]
        gaps = broker.log().recorded_gaps
        assert [(gap.first_offset, gap.last_offset) for gap in gaps] == [(0, start - 1)]
    assert is_healthy(tmp_path)


def produced_error(broker: LocalBroker, topic: str = "orders") -> int:
    answer = broker.ask(produce_request(a_batch(b"x"), topic=topic), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_every_request_for_a_lost_partition_is_answered_with_a_storage_error(tmp_path: Path) -> None:
    stopped(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    with LocalBroker(tmp_path) as broker:
        for timestamp in (-1, -2, -3, 0):
            wanted = ListOffsetsTopic(
                name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
            answer = broker.ask(ListOffsetsRequest(topics=[wanted]), 7)
            assert answer.topics[0].partitions[0].error_code == LOST
        assert broker.fetch(from_offset(0)).responses[0].partitions[0].error_code == LOST
        epochs = OffsetForLeaderTopic(
            topic="orders", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
        )
        answer = broker.ask(OffsetForLeaderEpochRequest(topics=[epochs]), 3)
        assert answer.topics[0].partitions[0].error_code == LOST
        producers = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
        assert broker.ask(producers, 0).topics[0].partitions[0].error_code == LOST
        records = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        answer = broker.ask(DeleteRecordsRequest(topics=[records]), 1)
        assert answer.topics[0].partitions[0].error_code == LOST


def test_a_partition_that_is_restored_goes_on_where_it_was(tmp_path: Path) -> None:
    stopped(tmp_path / "data")
    shutil.move(tmp_path / "data" / "orders-0", tmp_path / "backup")
    with LocalBroker(tmp_path / "data") as broker:
        assert produced_error(broker) == LOST
    shutil.move(tmp_path / "backup", tmp_path / "data" / "orders-0")
    with LocalBroker(tmp_path / "data") as broker:
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.produce(b"5").base_offset == 5
        assert broker.broker.metadata.unclean_starts == 0


def test_a_lost_partition_of_a_deleted_topic_is_forgotten_and_its_name_is_free(tmp_path: Path) -> None:
    stopped(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    with LocalBroker(tmp_path) as broker:
        broker.delete_topic()
        assert ORDERS not in decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes())
        broker.create_topic()
        assert broker.produce(b"new").base_offset == 0
        broker.kill()
        assert broker.values() == [b"new"]


def test_a_checkpoint_that_names_a_topic_that_was_deleted_is_no_loss(tmp_path: Path) -> None:
    """A crash between the removal of a log and the save of the offsets, after its files were deleted."""
    stopped(tmp_path)
    with LocalBroker(tmp_path) as broker:
        broker.delete_topic()
    for name in (RECOVERY_POINTS, START_OFFSETS):
        offsets = decode_offsets((tmp_path / name).read_bytes())
        (tmp_path / name).write_bytes(encode_offsets(offsets | {ORDERS: 5, TopicPartition("kept", 7): 5}))
    with LocalBroker(tmp_path) as broker:
        assert not broker.directory.unavailable
        assert ORDERS not in decode_offsets((tmp_path / RECOVERY_POINTS).read_bytes())
        broker.create_topic()
        assert broker.produce(b"new").base_offset == 0


def test_a_removal_that_a_crash_cut_short_is_no_loss(tmp_path: Path) -> None:
    """The directory has its other name, the checkpoint still names it, and a new topic has the name."""
    stopped(tmp_path)
    with LocalBroker(tmp_path) as broker:
        broker.hold_jobs = True
        before = (tmp_path / RECOVERY_POINTS).read_bytes()
        broker.delete_topic()
        broker.run_flushes()  # of the loss ledger
        job, _ = broker._jobs.popleft()
        job.run()
        (tmp_path / RECOVERY_POINTS).write_bytes(before)
        broker.hold_jobs = False
        broker._jobs.clear()
        broker.create_topic()
        broker.kill()
        assert not broker.directory.unavailable
        assert broker.produce(b"new").base_offset == 0


@LOSSES
@pytest.mark.parametrize("name", [METADATA, "__consumer_offsets-0"])
def test_without_a_log_of_its_own_the_broker_does_not_start_and_touches_nothing(
    tmp_path: Path, name: str, lose: Callable[[Path], None]
) -> None:
    stopped(tmp_path)
    if name != METADATA:
        directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
        directory.create(TopicPartition("__consumer_offsets", 0), topic_id=bytes(16))
        directory.close(0)
    lose(tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(LogUnavailable, match="--apply --accept-loss --internal"):
        LocalBroker(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_metadata_log_that_is_given_up_comes_back_as_far_as_the_logs_know(tmp_path: Path) -> None:
    stopped(tmp_path)
    shutil.rmtree(tmp_path / METADATA)
    repair(tmp_path)
    for _ in range(2):
        with LocalBroker(tmp_path, seed=1) as broker:
            assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]
            assert broker.values("kept") == [b"0", b"1", b"2", b"3", b"4"]
            assert not [path for path in tmp_path.iterdir() if path.name.endswith("-stray")]


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("keep", [0.0, 0.6])
def test_a_truncated_metadata_log_is_damage_and_not_an_end(tmp_path: Path, keep: float, end: str) -> None:
    stopped(tmp_path)
    if end == "kill":
        (tmp_path / ".kafka_cleanshutdown").unlink()
    log = next((tmp_path / METADATA).glob("*.log"))
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * keep)])
    assert not is_healthy(tmp_path)
    for _ in range(2):
        refuses_to_start(tmp_path)
    assert not is_healthy(tmp_path)
    repair(tmp_path)
    with LocalBroker(tmp_path, seed=1) as broker:
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("keep", [0.0, 0.6])
def test_so_is_a_truncated_log_of_the_groups(tmp_path: Path, keep: float, end: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for offset in range(9):
            place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequestTopic(name="orders", partitions=[place])
            broker.ask(OffsetCommitRequest(group_id="billing", topics=[topic]), 8)
    if end == "kill":
        (tmp_path / ".kafka_cleanshutdown").unlink()
    log = next((tmp_path / "__consumer_offsets-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * keep)])
    assert not is_healthy(tmp_path)
    for _ in range(2):
        refuses_to_start(tmp_path)
    assert not is_healthy(tmp_path)
    repair(tmp_path)
    assert is_healthy(tmp_path)
    LocalBroker(tmp_path, seed=1).close()


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("checksums", ["there", "lost"])
def test_a_truncated_log_of_the_groups_refuses_every_start_until_it_is_given_up(
    tmp_path: Path, stop: str, checksums: str
) -> None:
    data = shutil.copytree(Path(__file__).parents[1] / "data" / "format-2" / "stopped", tmp_path / "data")
    if stop == "kill":
        (data / ".kafka_cleanshutdown").unlink()
    log = next((data / "__consumer_offsets-0").glob("*.log"))
    content = log.read_bytes()
    log.write_bytes(content[: 12 + int.from_bytes(content[8:12])])  # the first batch
    if checksums == "lost":
        log.with_suffix(".sums").unlink()
    before = sorted(path.name for path in log.parent.iterdir() if path.suffix in (".log", ".metadata"))
    for _ in range(3):
        with pytest.raises(LogUnavailable, match=r"are gone .* --apply --accept-loss --internal"):
            LocalBroker(data)
    assert sorted(path.name for path in log.parent.iterdir() if path.suffix in (".log", ".metadata")) == before
    repair(data)
    for _ in range(2):
        with LocalBroker(data) as broker:
            assert not broker.directory.unavailable


# Logs whose partition.metadata is lost


def garbled_id(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


SPOIL: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "garbled": lambda path: path.write_bytes(b"\xff" * 40),
    "another id": garbled_id,
}


@pytest.mark.parametrize("how", SPOIL)
@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("name", ["orders-0", METADATA])
def test_a_log_without_its_topic_id_is_adopted_where_there_is_no_doubt(
    tmp_path: Path, name: str, stop: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path)
    if stop == "kill":
        (tmp_path / ".kafka_cleanshutdown").unlink()
    file = tmp_path / name / "partition.metadata"
    before = file.read_bytes()
    SPOIL[how](file)
    with LocalBroker(tmp_path) as broker:
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.produce(b"5").base_offset == 5
        assert file.read_bytes() == before
        assert "has been rewritten" in caplog.text
        broker.kill()
        assert broker.values()[-1] == b"5"


def test_a_topic_id_that_cannot_be_read_is_written_again(tmp_path: Path) -> None:
    stopped(tmp_path)
    files = FaultyFiles(OperatingSystemFiles())
    files.fail("read_at", EIO, name="partition.metadata", forever=True)
    with LocalBroker(tmp_path, files=files) as broker:
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_log_without_a_topic_id_is_moved_aside_if_another_topic_had_its_name(tmp_path: Path) -> None:
    stopped(tmp_path)
    with LocalBroker(tmp_path) as broker:
        broker.delete_topic()
        broker.create_topic()
        broker.produce(b"of the second")
        topic_id = (tmp_path / "orders-0" / "partition.metadata").read_bytes()
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    with LocalBroker(tmp_path) as broker:
        assert produced_error(broker) == LOST
    assert not is_healthy(tmp_path)
    with LocalBroker(tmp_path) as broker:
        assert produced_error(broker) == LOST, "the name stays in the checkpoints"
    (aside,) = (path for path in tmp_path.iterdir() if path.name.endswith("-stray"))
    aside.rename(tmp_path / "orders-0")
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(topic_id)
    with LocalBroker(tmp_path) as broker:
        assert broker.values() == [b"of the second"]


def test_what_only_the_journal_has_of_an_adopted_log_comes_back(tmp_path: Path) -> None:
    """The journal knows a log by its topic id, and that is what was lost."""
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": "1048576"}) as broker:
        broker.create_topic()
        for number in range(40):
            broker.produce(b"%d" % number)
            broker.tick(1)
        assert broker.directory.journal is not None
        size = next((tmp_path / "orders-0").glob("*.log")).stat().st_size
        broker.produce(b"journaled")
        broker._jobs.clear()
        broker.directory.abandon()
        log = next((tmp_path / "orders-0").glob("*.log"))
        assert log.stat().st_size > size
        log.write_bytes(log.read_bytes()[:size])  # as a power cut would have left it
        garbled_id(tmp_path / "orders-0" / "partition.metadata")
        broker.open()
        assert broker.values()[-1] == b"journaled"
        assert not list(broker.log().damage)


# Checkpoints are hints


@pytest.mark.parametrize("name", [RECOVERY_POINTS, START_OFFSETS])
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"orders 0", b"orderr 0"), (b"orders 0", b"orders 2"), (b"orders 0", b"ord\x00rs 0"), (b"5\n", b"-\n")],
)
def test_a_name_that_went_bad_in_one_checkpoint_is_no_loss(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    stopped(tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes().replace(old, new))
    assert is_healthy(tmp_path)
    with LocalBroker(tmp_path) as broker:
        assert not broker.directory.unavailable
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.produce(b"5").base_offset == 5


def test_a_marker_of_a_clean_stop_that_was_none_loses_nothing_that_the_journal_has(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": "1048576"}) as broker:
        broker.create_topic()
        for number in range(40):
            broker.produce(b"%d" % number)
            broker.tick(1)
        log = next((tmp_path / "orders-0").glob("*.log"))
        size = log.stat().st_size
        broker.produce(b"journaled")
        broker._jobs.clear()
        broker.directory.abandon()
        log.write_bytes(log.read_bytes()[:size])  # as a power cut would have left it
        (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1,"journal":"emptied"}')
        broker.open()
        assert broker.values()[-1] == b"journaled"
        assert broker.broker.metadata.unclean_starts == 1


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("start", [6, 700, 1 << 60])
def test_a_start_offset_behind_the_end_hides_nothing_and_gives_no_offset_twice(
    tmp_path: Path, start: int, stop: str
) -> None:
    stopped(tmp_path)
    if stop == "kill":
        (tmp_path / ".kafka_cleanshutdown").unlink()
    offsets = decode_offsets((tmp_path / START_OFFSETS).read_bytes())
    (tmp_path / START_OFFSETS).write_bytes(encode_offsets(offsets | {ORDERS: start}))
    may_be_right = stop == "kill" and start <= 700  # then records up to there may be lost
    assert is_healthy(tmp_path) is not may_be_right
    with LocalBroker(tmp_path) as broker:
        assert broker.log().start_offset == 0
        assert broker.values()[:5] == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.produce(b"new").base_offset == (start if may_be_right else 5)
        assert broker.values("kept") == [b"0", b"1", b"2", b"3", b"4"]
    assert is_healthy(tmp_path) is not may_be_right


def test_a_log_that_cannot_be_read_is_offline_alone(tmp_path: Path) -> None:
    stopped(tmp_path)
    for name in (".kafka_cleanshutdown", RECOVERY_POINTS):  # so that all logs are read
        (tmp_path / name).unlink()
    files = FaultyFiles(OperatingSystemFiles())
    original = files.called

    def called(kind: str, path: str) -> None:
        original(kind, path)
        if kind == "read_at" and path.endswith("orders-0/00000000000000000000.log"):
            raise OSError(EIO, "Input/output error", path)

    files.called = called  # type: ignore[method-assign]
    with LocalBroker(tmp_path, files=files) as broker:
        assert not broker.directory.unavailable[ORDERS].is_lost
        assert produced_error(broker) == LOST
        assert broker.values("kept") == [b"0", b"1", b"2", b"3", b"4"]
    with LocalBroker(tmp_path) as broker:
        assert broker.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_leftover_of_an_earlier_topic_does_not_hide_a_loss(tmp_path: Path) -> None:
    stopped(tmp_path)
    remove_directory(tmp_path / "orders-0")
    (tmp_path / put_away_name(ORDERS, 7, REMOVED)).mkdir()
    with LocalBroker(tmp_path) as broker:
        assert produced_error(broker) == LOST


def test_a_lost_partition_keeps_nothing_of_the_requests_that_it_refuses(tmp_path: Path) -> None:
    stopped(tmp_path)
    remove_directory(tmp_path / "orders-0")
    with LocalBroker(tmp_path) as broker:
        assert produced_error(broker) == LOST
        assert broker.directory.unavailable[ORDERS].__traceback__ is None


def test_a_topic_with_a_partition_that_cannot_be_opened_can_be_deleted(tmp_path: Path) -> None:
    """The disk is not asked whether the directory is there: a disk that fails would end the deletion halfway."""
    stopped(tmp_path)
    files = UnreadableDirectory(str(tmp_path / "orders-0"))
    with LocalBroker(tmp_path, files=files) as broker:
        assert broker.directory.unavailable.keys() == {ORDERS}
        files.is_open = True
        broker.delete_topic("orders")
        assert "orders" not in broker.broker.metadata.topics
        assert produced_error(broker, "kept") == ErrorCode.NONE


class UnreadableDirectory(FaultyFiles):
    """Calls that concern one directory fail."""

    def __init__(self, directory: str) -> None:
        super().__init__(OperatingSystemFiles())
        self.is_open = False
        self._directory = directory

    def files_in(self, directory: str) -> dict[str, int]:
        if directory == self._directory:
            raise OSError(EIO, "Input/output error", directory)
        return super().files_in(directory)

    def exists(self, path: str) -> bool:
        if path == self._directory and self.is_open:
            raise OSError(EIO, "Input/output error", path)
        return super().exists(path)
