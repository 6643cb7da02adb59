"""The reserve: below it producers are told to try again, and everything else goes on, until there is room."""

import logging
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
from brokers import LocalBroker, a_batch, produce_request
from group_requests import commit, offsets

from tailrace.broker.background.disk_reserve import FreeSpaceJob
from tailrace.broker.metadata.config_changes import Operation
from tailrace.log.disk.interface import Space
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.util.sizes import shown

GIB = 1 << 30


def with_free(files: FaultyFiles, free: int, total: int = 1000 * GIB) -> None:
    files.space_left = Space(free, total)


def a_broker(path: Path, free: int, total: int = 1000 * GIB, **configs: str) -> tuple[LocalBroker, FaultyFiles]:
    files = FaultyFiles(OperatingSystemFiles())
    with_free(files, free, total)
    broker = LocalBroker(path, {key.replace("_", "."): value for key, value in configs.items()}, files=files)
    broker.create_topic()
    broker.tick()
    return broker, files


@pytest.mark.parametrize(
    ("total", "reserve"), [(1000 * GIB, GIB), (20 * GIB, GIB), (10 * GIB, GIB // 2), (100 << 20, 5 << 20)]
)
def test_the_reserve_is_a_gibibyte_or_five_percent_and_ends_at_half_as_much_more(
    tmp_path: Path, total: int, reserve: int
) -> None:
    broker, files = a_broker(tmp_path, reserve, total)
    with broker:
        assert broker.produce(b"taken").error_code == 0
        with_free(files, reserve - 1, total)
        broker.tick()
        assert broker.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with_free(files, reserve + reserve // 2 - 1, total)
        broker.tick()
        assert broker.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with_free(files, reserve + reserve // 2, total)
        broker.tick()
        assert broker.produce(b"taken, too").error_code == 0
        assert broker.values() == [b"taken", b"taken, too"]
        assert broker.broker.disk_reserve.refused == 2


def test_a_refusal_says_how_much_is_free_and_what_to_do(tmp_path: Path) -> None:
    broker, _ = a_broker(tmp_path, 5 << 20)
    with broker:
        message = broker.produce(b"x").error_message
        assert "5.0 MiB are free" in message
        assert "1.0 GiB" in message
        assert "1.5 GiB" in message
        assert "tailrace.disk.reserve.bytes" in message
        assert "delete topics or records" in message
        assert not (tmp_path / "orders-0").exists(), "no log is made for what is refused"


def test_reads_commits_topics_and_deletions_go_on(tmp_path: Path) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        for _ in range(3):
            broker.produce(b"x")
        with_free(files, 0)
        broker.tick()
        assert broker.produce(b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.values() == [b"x"] * 3
        assert commit(broker, 2) == 0
        assert offsets(broker) == {("orders", 0): 2}
        wanted = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
        deleted = broker.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
        assert deleted.topics[0].partitions[0].low_watermark == 2
        broker.create_topic("another")
        broker.delete_topic("orders")
        assert not (tmp_path / "orders-0").exists()


def test_the_reserve_can_be_changed_at_run_time_and_0_is_none(tmp_path: Path) -> None:
    broker, _ = a_broker(tmp_path, 100, tailrace_disk_reserve_bytes="101")
    with broker:
        assert broker.produce(b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        change = AlterableConfig(name="tailrace.disk.reserve.bytes", config_operation=Operation.SET, value="0")
        wanted = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        broker.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1)
        broker.tick()
        assert broker.produce(b"x").error_code == 0


def test_entering_and_leaving_are_one_line_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        caplog.clear()
        for free in (GIB // 2, GIB // 3, GIB, 3 * GIB, 4 * GIB):
            with_free(files, free)
            broker.tick()
            broker.produce(b"x")
        assert [(record.levelno, record.message[:40]) for record in caplog.records] == [
            (logging.ERROR, "the disk is nearly full: 512.0 MiB are f"),
            (logging.WARNING, "3.0 GiB of disk space are free again: ap"),
        ]


def test_nothing_changes_while_the_free_space_is_unknown_and_the_check_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        with_free(files, 0)
        files.fail("space", EIO, forever=True)
        broker.tick()
        broker.tick()
        assert broker.produce(b"x").error_code == 0
        assert caplog.text.count("cannot determine free disk space") == 1
        files.heal()
        broker.tick()
        assert broker.produce(b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_that_does_not_answer_is_asked_once_and_holds_nobody_up(tmp_path: Path) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        broker.hold_jobs = True
        asked = files.count["space"]
        for _ in range(3):
            broker.tick(250)
        assert sum(isinstance(job, FreeSpaceJob) for job, _ in broker._jobs) == 1
        assert broker.produce(b"x", acks=1).error_code == 0
        broker.hold_jobs = False
        broker.run_jobs()
        assert files.count["space"] == asked + 1


def test_sizes_are_shown_for_people() -> None:
    assert [shown(size) for size in (5, 2048, 1 << 20, 3 << 29, 5 << 40)] == [
        "5 bytes",
        "2.0 KiB",
        "1.0 MiB",
        "1.5 GiB",
        "5120.0 GiB",
    ]


# A disk that is full all the same


def test_a_new_log_whose_small_files_find_no_room_is_flushed_when_there_is_some(tmp_path: Path) -> None:
    """Who waits for it goes on waiting, and nobody is told that the log is lost."""
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        files.fail("write_at", ENOSPC, name="leader-epoch-checkpoint", forever=True)
        waiting = broker.begin(produce_request(a_batch(b"x")), 12)
        broker.run_jobs()
        assert not waiting.is_resolved
        assert broker.log().offline is None
        broker.tick(2000)
        assert not waiting.is_resolved
        files.heal()
        broker.tick(2000)
        assert waiting.is_resolved
        assert broker.values() == [b"x"]
        broker.kill()
        assert broker.values() == [b"x"]


def test_an_internal_log_that_finds_no_room_refuses_what_it_is_asked_and_goes_on(tmp_path: Path) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    with broker:
        commit(broker, 1)
        files.fail("write_at", ENOSPC, forever=True)
        assert commit(broker, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.broker.failure is None
        files.heal()
        assert commit(broker, 3) == 0
        assert offsets(broker) == {("orders", 0): 3}


def test_a_stop_on_a_full_disk_is_an_unclean_one_and_loses_nothing(tmp_path: Path) -> None:
    broker, files = a_broker(tmp_path, 500 * GIB)
    broker.produce(b"x")
    for call in ("write_at", "open"):
        files.fail(call, ENOSPC, forever=True)
    with pytest.raises(StorageError):
        broker.close()
    files.heal()
    broker.open()
    with broker:
        assert not broker.directory.was_clean
        assert broker.values() == [b"x"]
