"""What a crash can do to the end of a log: earlier batches stay, the rest is cut off or named."""

import random
from itertools import pairwise

import pytest
from logs import (
    DATA,
    ORDERS,
    PARTITION,
    SMALL,
    answers,
    batch_of,
    memory_files,
    offsets_named,
    offsets_of,
    reopen,
    stored_batches,
    write_log,
)

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, START_OFFSETS
from tailrace.log.log import Log
from tailrace.records.batch import split
from tailrace.testing.recording_files import Disk

NOW = 100_000
Crashed = tuple[Disk, dict[int, bytes], Log]


@pytest.fixture
def crashed() -> Crashed:
    """Some segments below the recovery point, and some batches, flushed, behind it; then the power fails."""
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 30)
    directory.checkpoint(NOW)
    for number in range(4):
        log.append(batch_of(3, time=5000 + number), 5000)
    log.flush()
    return files.disk.copy(), stored_batches(log), log


@pytest.fixture
def stopped() -> Crashed:
    """The same, stopped cleanly."""
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 30)
    batches = stored_batches_after_flush(log)
    directory.close(NOW)
    return files.disk.copy(), batches, log


def stored_batches_after_flush(log: Log) -> dict[int, bytes]:
    log.flush()
    return stored_batches(log)


def check_tail(spoilt: Disk, batches: dict[int, bytes], intact_below: int) -> None:
    """Everything below an offset is there; of the rest nothing is wrong, and what is missing is cut off or named."""
    log, report = reopen(spoilt)
    found = stored_batches(log)
    assert all(batches[offset] == data for offset, data in found.items()), "bytes were served that nobody wrote"
    assert offsets_of({o: d for o, d in batches.items() if o < intact_below}) <= offsets_of(found)
    missing = {offset for offset in offsets_of(batches) - offsets_of(found) if offset < log.end_offset}
    assert missing <= offsets_named(log.damage) | offsets_named(report.damage)
    if log.end_offset < max(offsets_of(batches)) + 1:
        assert report.truncation is not None
        assert report.truncation.first_offset == log.end_offset


def last_segment(disk: Disk) -> str:
    return max(path for path in disk.names if path.startswith(PARTITION) and path.endswith(".log"))


def test_a_log_cut_at_every_byte_of_its_last_batch_keeps_all_earlier_ones(crashed: Crashed) -> None:
    disk, batches, _ = crashed
    last = max(batches)
    path = last_segment(disk)
    start = len(disk.file(path)) - len(batches[last])
    for size in range(start, len(disk.file(path))):
        spoilt = disk.copy()
        torn = bytes(spoilt.file(path)[start:size])
        del spoilt.file(path)[size:]
        log, report = reopen(spoilt)
        assert stored_batches(log) == {offset: data for offset, data in batches.items() if offset != last}
        assert log.end_offset == last
        assert not report.damage
        if torn:
            assert report.truncation is not None
            assert bytes(log.files.disk.file(f"{PARTITION}/{report.truncation.kept_as[0]}")) == torn  # type: ignore[attr-defined]


def test_the_epoch_rises_with_each_unclean_start_and_stays_with_a_clean_one(crashed: Crashed) -> None:
    disk, _, log = crashed
    before = log.leader_epoch
    log, report = reopen(disk)
    assert log.leader_epoch == report.leader_epoch == before + 1
    assert log.epoch_end(before).end_offset == log.end_offset
    log, _ = reopen(log.files.disk)  # type: ignore[attr-defined]
    assert log.leader_epoch == before + 2


def test_a_torn_tail_is_cut_only_once(crashed: Crashed) -> None:
    disk, _, _ = crashed
    del disk.file(last_segment(disk))[-7:]
    log, report = reopen(disk)
    assert report.truncation is not None
    end = log.end_offset
    log, report = reopen(log.files.disk)  # type: ignore[attr-defined]
    assert report.truncation is None
    assert log.end_offset == end


@pytest.mark.parametrize("sector", [512, 4096])
def test_zeroed_sectors_behind_the_recovery_point_end_the_log_or_are_named(crashed: Crashed, sector: int) -> None:
    disk, batches, _ = crashed
    path = last_segment(disk)
    for start in range(0, len(disk.file(path)), sector):
        spoilt = disk.copy()
        content = spoilt.file(path)
        end = min(len(content), start + sector)
        content[start:end] = bytes(end - start)
        first_hit = min(offset for offset, at in positions(disk, path, batches) if at[1] > start)
        check_tail(spoilt, batches, intact_below=first_hit)


def positions(disk: Disk, path: str, batches: dict[int, bytes]) -> list[tuple[int, tuple[int, int]]]:
    return [(header.base_offset, (at, at + header.size)) for at, header in split(bytes(disk.file(path)))]


@pytest.mark.parametrize("length", [1, 11, 12, 60, 61, 62, 500, 5000])
def test_garbage_behind_the_last_batch_is_cut_off(crashed: Crashed, length: int) -> None:
    disk, batches, _ = crashed
    for seed in range(5):
        spoilt = disk.copy()
        spoilt.file(last_segment(spoilt)).extend(random.Random(seed).randbytes(length))
        log, report = reopen(spoilt)
        assert stored_batches(log) == batches
        assert report.truncation is not None
        assert report.truncation.length == length


def test_a_tail_of_zeros_is_cut_off(crashed: Crashed) -> None:
    disk, batches, _ = crashed
    disk.file(last_segment(disk)).extend(bytes(10_000))
    log, report = reopen(disk)
    assert stored_batches(log) == batches
    assert report.truncation is not None


def test_a_torn_batch_whose_value_holds_a_whole_batch_gives_no_false_record(crashed: Crashed) -> None:
    from tailrace.records.batch import read_header, stamp
    from tailrace.records.record import Record, encode_batch

    disk, batches, log = crashed
    inner = encode_batch([Record(0, 1, b"false", b"record")])
    stamp(inner, read_header(inner), log.end_offset + 1, log.leader_epoch)
    outer = encode_batch([Record(0, 1, b"true", bytes(inner) + b"rest" * 50)])
    stamp(outer, read_header(outer), log.end_offset, log.leader_epoch)
    for size in range(1, len(outer)):
        spoilt = disk.copy()
        spoilt.file(last_segment(spoilt)).extend(outer[:size])
        reopened, _ = reopen(spoilt)
        assert stored_batches(reopened) == batches


def test_a_lost_segment_behind_the_recovery_point_ends_the_log_there() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 40)
    batches = stored_batches_after_flush(log)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) >= 4
    for lost in bases[:-1]:
        spoilt = files.disk.copy()
        del spoilt.names[f"{PARTITION}/{lost:020d}.log"]
        reopened, report = reopen(spoilt)
        assert reopened.end_offset == lost
        assert stored_batches(reopened) == {offset: data for offset, data in batches.items() if offset < lost}
        assert report.truncation is not None
        assert len(report.truncation.kept_as) == len([base for base in bases if base > lost])


def test_a_lost_segment_before_the_recovery_point_is_damage_and_the_rest_is_served(crashed: Crashed) -> None:
    disk, batches, log = crashed
    bases = [segment.base_offset for segment in log.segments]
    for lost, following in pairwise(bases):
        spoilt = disk.copy()
        del spoilt.names[f"{PARTITION}/{lost:020d}.log"]
        reopened, _ = reopen(spoilt)
        assert stored_batches(reopened) == {o: data for o, data in batches.items() if not lost <= o < following}
        assert reopened.end_offset == log.end_offset


def test_flushed_records_that_are_gone_are_named_and_their_offsets_not_given_again(crashed: Crashed) -> None:
    disk, batches, log = crashed
    end = log.end_offset
    directory = DataDirectory(log.files, DATA, SMALL)  # opened again, all is below the recovery point now
    disk = directory.files.disk.copy()  # type: ignore[attr-defined]
    del disk.file(last_segment(disk))[-5:]
    reopened, report = reopen(disk)
    assert [(bad.first_offset, bad.last_offset) for bad in report.damage] == [(max(batches), end - 1)]
    assert reopened.append(batch_of(1), NOW).base_offset == end


DERIVED = (".index", ".timeindex", ".txnindex", ".sums", ".snapshot", "leader-epoch-checkpoint")


@pytest.mark.parametrize("suffix", [*DERIVED, RECOVERY_POINTS, START_OFFSETS])
@pytest.mark.parametrize("stop", ["crashed", "stopped"])
def test_derived_files_cut_at_every_byte_are_rebuilt_and_change_nothing(
    suffix: str, stop: str, request: pytest.FixtureRequest
) -> None:
    disk, batches, _ = request.getfixturevalue(stop)
    expected = answers(reopen(disk)[0])
    paths = [path for path in disk.names if path.endswith(suffix)]
    assert paths
    for path in paths:
        size = len(disk.file(path))
        for cut in range(0, size, max(1, size // 40)):
            spoilt = disk.copy()
            del spoilt.file(path)[cut:]
            reopened, _ = reopen(spoilt)
            assert stored_batches(reopened) == batches, (path, cut)
            assert answers(reopened) == expected, (path, cut)
        spoilt = disk.copy()
        del spoilt.names[path]
        reopened, _ = reopen(spoilt)
        if suffix != ".txnindex" or f"{path[:-9]}.sums" in disk.names:
            assert answers(reopened) == expected, path


def test_a_clean_start_reads_no_data(stopped: Crashed) -> None:
    disk, _, _ = stopped
    from errno import EIO

    from tailrace.testing.faulty_files import FaultyFiles
    from tailrace.testing.recording_files import RecordingFiles

    files = FaultyFiles(RecordingFiles(disk.copy()))
    files.fail("read_at", EIO, name=".log", forever=True)
    directory = DataDirectory(files, DATA, SMALL)
    assert directory.was_clean
    assert directory.logs[ORDERS].end_offset > 0


def test_the_marker_of_a_clean_stop_is_gone_once_the_directory_is_open(stopped: Crashed) -> None:
    disk, _, _ = stopped
    assert f"{DATA}/{CLEAN_SHUTDOWN}" in disk.names
    log, _ = reopen(disk)
    assert f"{DATA}/{CLEAN_SHUTDOWN}" not in log.files.disk.names  # type: ignore[attr-defined]
