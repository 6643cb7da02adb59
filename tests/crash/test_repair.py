"""A repair that is cut short at any of its calls, by a power cut or by a disk that refuses: nothing sound is ever lost,
what is bad is kept, and the next repair comes to the same end.
"""

from collections.abc import Callable, Iterator
from errno import EIO, ENOSPC

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, memory_files, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.log import Log
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.log.tools.verify import verify
from tailrace.records.batch import HEADER_SIZE, read_header, split
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = "2026-11-16T10:00:00+00:00"


def stopped() -> Disk:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    write_log(directory.create(ORDERS), 20)
    directory.close(5000)
    return files.disk


def segments_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(".log"))


def spoil(disk: Disk, segment: int, batch: int) -> None:
    path = segments_of(disk)[segment]
    found, position = [], 0
    while position < len(disk.file(path)):
        found.append(position)
        position += read_header(bytes(disk.file(path)), position).size
    for at in range(found[batch] + HEADER_SIZE, found[batch] + HEADER_SIZE + 10):
        disk.file(path)[at] ^= 0x5A


def a_batch(disk: Disk) -> None:
    spoil(disk, 0, 2)


def the_last_but_one_of_a_segment(disk: Disk) -> None:
    spoil(disk, 1, -2)


def several(disk: Disk) -> None:
    spoil(disk, 0, 1)
    spoil(disk, 0, -1)
    spoil(disk, 1, 0)


def the_last_of_all(disk: Disk) -> None:
    spoil(disk, -1, -1)


def a_batch_of_the_active_segment(disk: Disk) -> None:
    spoil(disk, -1, 0)


def a_bit(disk: Disk) -> None:
    disk.file(segments_of(disk)[0])[300] ^= 4


def a_file(disk: Disk) -> None:
    del disk.names[segments_of(disk)[1]]


def the_first_file(disk: Disk) -> None:
    del disk.names[segments_of(disk)[0]]


def the_last_file(disk: Disk) -> None:
    del disk.names[segments_of(disk)[-1]]


def one_file_twice(disk: Disk) -> None:
    first, second = segments_of(disk)[:2]
    position, header = list(split(bytes(disk.file(first))))[-2]
    data = bytes(disk.file(first)[position:]) + bytes(disk.file(second))
    RecordingFiles(disk).open(f"{PARTITION}/{header.base_offset:020d}.log", create=True).write_at(0, data)
    del disk.names[second]


def derived_files(disk: Disk) -> None:
    for name in [name for name in disk.names if name.endswith((".sums", ".index", ".snapshot", "checkpoint"))]:
        disk.file(name)[-1] ^= 0xFF


DAMAGE: list[Callable[[Disk], None]] = [
    a_batch, the_last_but_one_of_a_segment, several, the_last_of_all, a_batch_of_the_active_segment, a_bit,
    a_file, the_first_file, the_last_file, one_file_twice, derived_files,
]  # fmt: skip


def repair(files: Files) -> None:
    carry_out(files, make_plan(files, locate(files, DATA)), DATA, NOW)


def opened(disk: Disk) -> Log:
    return DataDirectory(RecordingFiles(disk.copy()), DATA, SMALL).logs[ORDERS]


def readable(log: Log) -> dict[int, bytes]:
    return {base: data for base, data in stored_batches(log).items() if read_header(data).record_count}


class Expected:
    """What is there before a repair, and what has to be there after one that was not cut short."""

    def __init__(self, disk: Disk) -> None:
        self.bad = [
            bytes(disk.file(f"{DATA}/{damage.file}")[damage.position : damage.end])
            for damage in verify(RecordingFiles(disk), locate(RecordingFiles(disk), DATA)).damage
            if damage.length
        ]
        self.files = RecordingFiles(disk.copy())
        repair(self.files)
        log = opened(self.files.disk)
        self.readable, self.end = readable(log), log.end_offset
        self.gaps = [(gap.first_offset, gap.last_offset) for gap in log.recorded_gaps]

    def holds_in(self, disk: Disk) -> None:
        """After a repair that was cut short, and one that was not."""
        for bad in self.bad:
            assert any(bad in bytes(disk.file(name)) for name in disk.names), "bytes are gone"
        log = opened(disk)
        assert log.end_offset == self.end, "offsets would be given again"
        files = RecordingFiles(disk)
        repair(files)
        found = verify(files, locate(files, DATA))
        assert found.healthy
        assert not found.derived
        assert make_plan(files, locate(files, DATA)).is_empty
        log = opened(disk)
        assert readable(log) == self.readable
        assert log.end_offset == self.end
        assert [(gap.first_offset, gap.last_offset) for gap in log.recorded_gaps] == self.gaps
        for bad in self.bad:
            assert any(bad in bytes(disk.file(name)) for name in disk.names), "bytes are gone"


def power_cuts(files: RecordingFiles, limit: int, step: int = 1) -> Iterator[Disk]:
    for after in range(0, len(files.calls) + 1, step):
        for cut in files.power_cuts(after, limit=limit, seed=after):
            yield cut.disk


def cut_short_by_a_power_cut(damage: Callable[[Disk], None], limit: int, step: int) -> None:
    disk = stopped()
    damage(disk)
    expected = Expected(disk)
    for left in power_cuts(expected.files, limit, step):
        expected.holds_in(left)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_repair_that_a_power_cut_ends_can_be_done_again(damage: Callable[[Disk], None]) -> None:
    cut_short_by_a_power_cut(damage, limit=2, step=5)


@pytest.mark.crash
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_repair_that_any_power_cut_ends_can_be_done_again(damage: Callable[[Disk], None]) -> None:
    cut_short_by_a_power_cut(damage, limit=60, step=1)


KINDS = ["open", "write_at", "sync", "rename", "sync_directory", "truncate", "remove", "read_at"]


def cut_short_by_a_disk(damage: Callable[[Disk], None], kinds: list[str], step: int) -> None:
    disk = stopped()
    damage(disk)
    expected = Expected(disk)
    for kind in kinds:
        for after in range(0, 1000, step):
            left = disk.copy()
            faulty = FaultyFiles(RecordingFiles(left))
            faulty.fail(kind, ENOSPC if kind == "write_at" else EIO, after=after)
            try:
                repair(faulty)
            except OSError:
                expected.holds_in(left)
            else:
                break


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_repair_that_the_disk_refuses_can_be_done_again(damage: Callable[[Disk], None]) -> None:
    cut_short_by_a_disk(damage, ["rename"], 1)


@pytest.mark.crash
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_repair_that_the_disk_refuses_anywhere_can_be_done_again(damage: Callable[[Disk], None]) -> None:
    cut_short_by_a_disk(damage, KINDS, 1)
