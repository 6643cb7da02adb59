"""Blocks ahead of a segment: who has some, that nobody sees them in the file, and that none are left for good."""

import os
from errno import EIO, ENOSPC
from math import inf
from pathlib import Path

import pytest
from logs import DATA, ORDERS, memory_files

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.disk.system_calls import SCARCE_BYTES, is_scarce, reserve
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import OutOfSpace
from tailrace.log.log import Log
from tailrace.log.segment import preallocation as blocks
from tailrace.log.segment.preallocation import AHEAD_BYTES, BEGIN_BYTES
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles

NOW = 5000
MB = 1 << 20
SLACK = 64 << 10  # what a file system may have beside the data of a file
BATCH = encode_batch([Record(0, 1000, None, bytes(MB // 4))])


def ahead(path: Path) -> int:
    """How much more of the disk a file has than it is long."""
    found = os.stat(path)
    return found.st_blocks * 512 - found.st_size


class Setup:
    """A directory on a real disk with one log."""

    def __init__(self, path: Path, config: LogConfig | None = None) -> None:
        self.path = path
        self.files = FaultyFiles(OperatingSystemFiles())
        self.directory = DataDirectory(self.files, str(path), config or LogConfig())
        self.log = self.directory.create(ORDERS)

    def append(self, size: int) -> None:
        for _ in range(0, size, len(BATCH)):
            self.log.append(bytearray(BATCH), NOW)

    def segment(self, number: int = -1) -> Path:
        return sorted((self.path / str(ORDERS)).glob("*.log"))[number]


@pytest.fixture(autouse=True)
def a_disk_that_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONG_S", inf)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    probe = tmp_path / "probe"
    with open(probe, "wb") as file:
        file.write(bytes(MB))
        os.fsync(file.fileno())
        has_none_of_its_own = ahead(probe) < SLACK
        is_reserved = reserve(file.fileno(), MB, MB) and ahead(probe) >= MB
    if not (is_reserved and has_none_of_its_own):
        pytest.skip("this file system has no blocks behind the end of a file, or nothing to spare, or always some")
    return Setup(tmp_path / "data")


def size_of(log: Log) -> int:
    return sum(segment.size for segment in log.segments)


def test_a_segment_that_grows_has_blocks_ahead_and_is_no_longer_for_it(setup: Setup) -> None:
    setup.append(BEGIN_BYTES // 2)
    assert ahead(setup.segment()) < SLACK, "little may be all that ever comes"
    setup.append(2 * BEGIN_BYTES)
    setup.log.flush()
    assert AHEAD_BYTES // 2 < ahead(setup.segment()) <= AHEAD_BYTES + SLACK
    assert os.path.getsize(setup.segment()) == size_of(setup.log)
    setup.append(2 * AHEAD_BYTES)
    setup.log.flush()
    assert 0 < ahead(setup.segment()) <= AHEAD_BYTES + SLACK


def test_a_checkpoint_after_which_nothing_came_gives_blocks_back(setup: Setup) -> None:
    setup.append(4 * MB)
    setup.log.checkpoint(NOW)
    assert ahead(setup.segment()) < SLACK
    assert os.path.getsize(setup.segment()) == size_of(setup.log)
    setup.append(BEGIN_BYTES // 2)  # who writes little from now on has none
    setup.log.flush()
    assert ahead(setup.segment()) < SLACK


def test_a_checkpoint_amid_appends_leaves_them_where_they_are(setup: Setup) -> None:
    setup.append(4 * MB)
    flush = setup.log.begin_checkpoint(NOW)
    flush.run()
    save = flush.finish()
    assert save is not None
    setup.append(MB)
    save.run()
    save.finish()
    assert ahead(setup.segment()) > AHEAD_BYTES // 4
    setup.append(MB)
    assert os.path.getsize(setup.segment()) == size_of(setup.log)


def test_a_segment_that_is_full_has_none(tmp_path: Path, setup: Setup) -> None:
    setup = Setup(tmp_path / "small", LogConfig(segment_bytes=3 * MB))
    setup.append(7 * MB)
    assert len(setup.log.segments) > 2
    setup.log.checkpoint(NOW)
    assert [ahead(setup.segment(number)) < SLACK for number in range(len(setup.log.segments))] == [True] * 3


def test_a_clean_stop_gives_blocks_back(setup: Setup) -> None:
    setup.append(4 * MB)
    setup.directory.close(NOW)
    assert ahead(setup.segment()) < SLACK


def test_the_start_after_a_crash_gives_blocks_back(setup: Setup) -> None:
    setup.append(4 * MB)
    setup.log.flush()
    end = setup.log.end_offset
    setup.directory.abandon()  # as a killed process does
    assert ahead(setup.segment()) > AHEAD_BYTES // 2
    after = DataDirectory(OperatingSystemFiles(), str(setup.path), LogConfig())
    assert after.logs[ORDERS].end_offset == end
    assert ahead(setup.segment()) < SLACK
    after.close(NOW)


def test_what_is_cut_off_after_a_crash_has_none(tmp_path: Path, setup: Setup) -> None:
    setup = Setup(tmp_path / "small", LogConfig(segment_bytes=3 * MB))
    setup.append(5 * MB)
    setup.directory.abandon()
    assert ahead(setup.segment()) > SLACK
    with open(setup.segment(0), "r+b") as first:
        first.truncate(MB)  # as if it had not come to disk
    after = DataDirectory(OperatingSystemFiles(), str(setup.path), LogConfig())
    (cut,) = (setup.path / str(ORDERS)).glob("*.log.cut")
    assert ahead(cut) < SLACK
    after.abandon()


def test_an_append_that_is_undone_takes_its_blocks_along(setup: Setup) -> None:
    setup.append(4 * MB)
    size = size_of(setup.log)
    setup.files.fail("write_at", ENOSPC)
    with pytest.raises(OutOfSpace):
        setup.append(len(BATCH))
    assert os.path.getsize(setup.segment()) == size
    assert ahead(setup.segment()) < SLACK
    setup.append(len(BATCH))
    assert os.path.getsize(setup.segment()) == size + len(BATCH)


def test_so_does_one_that_cannot_save_for_want_of_space(setup: Setup) -> None:
    setup.append(4 * MB)
    setup.files.fail("write_at", ENOSPC, name=".index", forever=True)
    setup.log.checkpoint(NOW)
    assert setup.log.save_failed
    assert ahead(setup.segment()) < SLACK


def test_a_start_is_not_refused_because_blocks_cannot_be_given_back(setup: Setup) -> None:
    setup.append(4 * MB)
    setup.log.flush()
    end = setup.log.end_offset
    setup.directory.abandon()
    setup.files.fail("give_back", EIO, forever=True)
    after = DataDirectory(setup.files, str(setup.path), LogConfig())
    assert after.logs[ORDERS].end_offset == end
    after.abandon()


def test_files_that_have_none_are_not_changed_by_a_start(setup: Setup) -> None:
    """Where records have no time of their own, that of the file is how old they are."""
    setup.append(BEGIN_BYTES // 2)
    setup.log.flush()
    setup.directory.abandon()
    os.utime(setup.segment(), (1000, 1000))
    DataDirectory(OperatingSystemFiles(), str(setup.path), LogConfig()).abandon()
    assert os.stat(setup.segment()).st_mtime == 1000


def test_a_disk_that_takes_long_is_not_asked_again_for_a_while(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONG_S", 0.0)
    monkeypatch.setattr(blocks, "LATER_BYTES", 4 * AHEAD_BYTES)
    setup.append(3 * AHEAD_BYTES)
    assert setup.files.count["reserve"] == 1
    setup.append(2 * AHEAD_BYTES)
    assert setup.files.count["reserve"] == 2


def test_one_that_is_written_to_slowly_has_none(setup: Setup) -> None:
    for _ in range(8):
        setup.append(BEGIN_BYTES // 2)
        setup.log.checkpoint(NOW)
    assert setup.files.count["reserve"] == 0


@pytest.mark.parametrize("call", ["reserve", "give_back"])
def test_a_disk_that_refuses_is_as_well(setup: Setup, call: str) -> None:
    setup.files.fail(call, EIO)
    setup.append(4 * MB)
    setup.log.checkpoint(NOW)
    setup.append(4 * MB)
    setup.log.flush()
    assert setup.log.offline is None
    assert setup.log.high_watermark == setup.log.end_offset == 32


def test_one_that_knows_no_such_thing_is_asked_once_in_a_while() -> None:
    files = FaultyFiles(memory_files())
    log = DataDirectory(files, DATA, LogConfig()).create(ORDERS)
    for _ in range(0, 2 * AHEAD_BYTES, len(BATCH)):
        log.append(bytearray(BATCH), NOW)
    assert files.count["reserve"] == 2


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (100, 9, True),
        (100, 10, False),
        (100 * SCARCE_BYTES // 4096, SCARCE_BYTES // 4096, False),
        (100 * SCARCE_BYTES // 4096, SCARCE_BYTES // 4096 - 1, True),
    ],
)
def test_nothing_is_taken_where_little_is_free(total: int, free: int, expected: bool) -> None:
    assert is_scarce(os.statvfs_result((4096, 4096, total, free, free, 0, 0, 0, 0, 255))) is expected
