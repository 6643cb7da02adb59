"""Which partitions the offset checkpoints name, and when."""

import time
from concurrent.futures import ThreadPoolExecutor
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
from logs import DATA, ORDERS, SMALL, batch_of, memory_files, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS, decode_offsets, encode_offsets
from tailrace.log.flush.journal_write import bytes_to_journal
from tailrace.log.layout.errors import OutOfSpace
from tailrace.log.layout.names import TopicPartition
from tailrace.testing.faulty_files import FaultyFiles

NOW = 5000
OTHER = TopicPartition("other", 0)


def named(path: Path) -> set[TopicPartition]:
    return set(decode_offsets((path / RECOVERY_POINTS).read_bytes()))


def test_the_first_flush_of_a_new_log_names_it_and_a_save_before_that_does_not(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    log = directory.create(ORDERS)
    log.append(batch_of(1), NOW)
    early = directory.begin_save_offsets()
    early.run()
    early.finish()
    assert named(tmp_path) == set(), "its directory may not be on disk yet"
    late = directory.begin_save_offsets()
    log.flush()
    assert named(tmp_path) == {ORDERS}
    late.run()
    late.finish()
    assert named(tmp_path) == {ORDERS}, "although it was noted before"
    other = directory.create(TopicPartition("other", 0))
    other.append(batch_of(1), NOW)
    noted = directory.note_offsets()
    third = directory.create(TopicPartition("third", 0))
    third.append(batch_of(1), NOW)
    third.flush()
    directory.offset_checkpoints.save(noted)
    assert named(tmp_path) == {ORDERS, TopicPartition("third", 0)}
    directory.close(NOW)
    assert named(tmp_path) == {ORDERS, TopicPartition("other", 0), TopicPartition("third", 0)}


def test_new_logs_that_are_flushed_together_share_one_write_of_the_checkpoint(tmp_path: Path) -> None:
    files = CountingFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(tmp_path))
    jobs = []
    for number in range(16):
        log = directory.create(TopicPartition("orders", number))
        log.append(batch_of(1), NOW)
        jobs.append(log.begin_flush())
    files.writes = 0
    saved = directory.offset_checkpoints
    with ThreadPoolExecutor(16) as threads:
        with saved._mutex:
            running = [threads.submit(job.run) for job in jobs if job is not None]
            while len(saved._to_enrol) < 16:
                time.sleep(0.001)
        for one in running:
            one.result()
    assert files.writes == 1
    for job in jobs:
        assert job is not None
        job.finish()
    assert len(named(tmp_path)) == 16
    assert all(log.is_enrolled and log.enrol is None for log in directory.logs.values())
    directory.close(NOW)


class CountingFiles(FaultyFiles):
    writes = 0  # of the recovery points

    def called(self, kind: str, path: str) -> None:
        self.writes += kind == "write_at" and RECOVERY_POINTS in path
        super().called(kind, path)


def test_no_power_cut_leaves_a_name_without_a_log_or_a_flushed_log_without_a_name() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    flushed = {}
    for number in range(3):
        log = directory.create(TopicPartition("orders", number))
        write_log(log, 2)
        log.flush()
        flushed[len(files.calls)] = log.end_offset
        if number == 1:
            directory.checkpoint(NOW)
    directory.create(TopicPartition("orders", 3)).append(batch_of(1), NOW)
    job = directory.begin_save_offsets()
    job.run()
    job.finish()
    for after in range(0, len(files.calls) + 1, 3):
        for cut in files.power_cuts(after, limit=20):
            reopened = DataDirectory(cut, DATA, SMALL)
            assert not reopened.unavailable
    for calls, number in zip(flushed, range(3), strict=True):
        for cut in files.power_cuts(calls, limit=20):
            partition = TopicPartition("orders", number)
            assert partition in decode_offsets(bytes(cut.disk.file(f"{DATA}/{RECOVERY_POINTS}")))


def test_a_first_flush_without_room_for_the_checkpoint_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(tmp_path))
    log = directory.create(ORDERS)
    log.append(batch_of(1), NOW)
    files.fail("write_at", ENOSPC, name=RECOVERY_POINTS)
    with pytest.raises(OutOfSpace):
        log.flush()
    assert log.high_watermark == 0
    log.flush()
    assert (log.high_watermark, named(tmp_path)) == (1, {ORDERS})
    directory.close(NOW)


def test_a_clean_start_writes_a_checkpoint_that_is_missing_or_older(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    write_log(directory.create(ORDERS), 5)
    directory.close(NOW)
    before = (tmp_path / RECOVERY_POINTS).read_bytes()
    for content in (None, b"0\n0\n", b"0\n1\norders 0 1\n", b"garbage"):
        if content is None:
            (tmp_path / RECOVERY_POINTS).unlink()
        else:
            (tmp_path / RECOVERY_POINTS).write_bytes(content)
        directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
        assert (tmp_path / RECOVERY_POINTS).read_bytes() == before
        directory.close(NOW)


class UnreadableCheckpoints(FaultyFiles):
    def called(self, kind: str, path: str) -> None:
        super().called(kind, path)
        if kind == "read_at" and path.endswith("-checkpoint") and path.startswith(f"{DATA}/"):
            raise OSError(EIO, "Input/output error", path)


def test_checkpoints_that_cannot_be_read_are_replaced() -> None:
    disk = memory_files()
    directory = DataDirectory(disk, DATA, SMALL)
    write_log(directory.create(ORDERS), 5)
    directory.close(NOW)
    DataDirectory(UnreadableCheckpoints(disk), DATA, SMALL).close(NOW)
    directory = DataDirectory(disk, DATA, SMALL)
    assert directory.logs[ORDERS].end_offset > 0
    assert directory.reports[ORDERS].was_clean


def a_killed_directory(path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(path))
    for partition in (ORDERS, OTHER):
        log = directory.create(partition, topic_id=bytes(16))
        log.append(batch_of(1), NOW)
        log.flush()
    directory.checkpoint(NOW)
    directory.abandon()


def start_without_room(path: Path) -> DataDirectory:
    files = FaultyFiles(OperatingSystemFiles())
    files.fail("write_at", ENOSPC, name="checkpoint", forever=True)
    directory = DataDirectory(files, str(path))
    files.heal()
    return directory


@pytest.mark.parametrize("how", ["flush", "checkpoint"])
def test_the_next_flush_enrols_a_log_that_a_start_on_a_full_disk_could_not_enrol(tmp_path: Path, how: str) -> None:
    a_killed_directory(tmp_path)
    for name in (RECOVERY_POINTS, START_OFFSETS):
        (tmp_path / name).write_bytes(encode_offsets({OTHER: 0}))
    directory = start_without_room(tmp_path)
    assert named(tmp_path) == {OTHER}
    log = directory.logs[ORDERS]
    if how == "flush":
        log.append(batch_of(1), NOW)
        assert bytes_to_journal(log) == 0, "it does not go into the journal before"
        log.flush()
    else:
        directory.checkpoint(NOW)
    assert named(tmp_path) == {ORDERS, OTHER}
    directory.close(NOW)
    assert named(tmp_path) == {ORDERS, OTHER}


def test_a_new_log_is_not_the_only_name_where_the_recovery_points_were_damaged(tmp_path: Path) -> None:
    a_killed_directory(tmp_path)
    (tmp_path / RECOVERY_POINTS).write_bytes(b"garbled")
    directory = start_without_room(tmp_path)
    new = directory.create(TopicPartition("new", 0))
    new.append(batch_of(1), NOW)
    new.flush()
    assert named(tmp_path) == {ORDERS, OTHER, TopicPartition("new", 0)}
    directory.close(NOW)
