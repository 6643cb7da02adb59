"""Rot in a sealed segment: each flipped bit is found, costs the batch it is in and no other, and nothing is deleted."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from logs import (
    DATA,
    ORDERS,
    PARTITION,
    answers,
    batch_of,
    memory_files,
    offsets_named,
    offsets_of,
    stored_batches,
    write_log,
)

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log
from tailrace.records.batch import HEADER_SIZE, split
from tailrace.testing.recording_files import Disk, RecordingFiles

CONFIG = LogConfig(segment_bytes=64 << 10, index_interval_bytes=4096)


@dataclass
class Sealed:
    """A log that was stopped cleanly, its first segment sealed, and where each of that segment's batches lies."""

    disk: Disk
    batches: dict[int, bytes]
    places: list[tuple[int, int, int]]  # position, end, base offset
    path: str = f"{PARTITION}/{0:020d}.log"

    def open(self) -> Log:
        end = max(offsets_of(self.batches)) + 1
        files = RecordingFiles(self.disk)
        log, _ = open_log(files, PARTITION, CONFIG, clean=True, recovery_point=end, start_offset=0)
        assert not files.calls, "a clean start changes nothing"
        return log

    def hit_by(self, position: int) -> int:
        return next(offset for start, end, offset in self.places if start <= position < end)


@pytest.fixture(scope="module")
def sealed() -> Sealed:
    files = memory_files()
    directory = DataDirectory(files, DATA, CONFIG)
    log = directory.create(ORDERS)
    write_log(log, 6)
    lot = random.Random(1)
    while len(log.segments) < 2:
        log.append(batch_of(lot.choice([1, 2, 10]), time=9000, size=lot.choice([5, 100, 3000])), 9000)
    write_log_tail(log)
    log.flush()
    batches = stored_batches(log)
    directory.close(10_000)
    content = bytes(files.disk.file(f"{PARTITION}/{0:020d}.log"))
    places = [(at, at + header.size, header.base_offset) for at, header in split(content)]
    return Sealed(files.disk, batches, places)


def write_log_tail(log: Log) -> None:
    for _ in range(3):
        log.append(batch_of(2, time=9500), 9500)


def check_flip(sealed: Sealed, position: int, bit: int) -> None:
    content = sealed.disk.file(sealed.path)
    names = dict(sealed.disk.names)
    content[position] ^= 1 << bit
    try:
        log = sealed.open()
        found = stored_batches(log)
        hit = sealed.hit_by(position)
        healthy = {offset: data for offset, data in sealed.batches.items() if offset != hit}
        assert found == healthy, f"byte {position}, bit {bit}"
        assert offsets_named(log.damage) == offsets_of({hit: sealed.batches[hit]})
        assert sealed.disk.names == names
    finally:
        content[position] ^= 1 << bit


def header_bits(sealed: Sealed, share: int) -> Iterator[tuple[int, int]]:
    for number, (start, _, _) in enumerate(sealed.places):
        if number % 8 == share:
            for position in range(start, start + HEADER_SIZE):
                for bit in range(8):
                    yield position, bit


@pytest.mark.timeout(180)
@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.crash) for share in range(1, 8))])
def test_every_flipped_bit_of_every_batch_header_costs_that_batch_alone(sealed: Sealed, share: int) -> None:
    for position, bit in header_bits(sealed, share):
        check_flip(sealed, position, bit)


def test_two_thousand_flipped_bits_anywhere_cost_one_batch_each(sealed: Sealed) -> None:
    lot = random.Random(2)
    size = len(sealed.disk.file(sealed.path))
    for _ in range(2000):
        check_flip(sealed, lot.randrange(size), lot.randrange(8))


@pytest.mark.crash
@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_sealed_segment_costs_one_batch(sealed: Sealed, bit: int) -> None:
    for position in range(len(sealed.disk.file(sealed.path))):
        check_flip(sealed, position, bit)


def test_flips_in_derived_files_change_no_answer(sealed: Sealed) -> None:
    expected, batches = answers(sealed.open()), sealed.batches
    suffixes = (".index", ".timeindex", ".txnindex", ".sums", ".snapshot")
    paths = sorted(path for path in sealed.disk.names if path.endswith(suffixes))
    lot = random.Random(3)
    for _ in range(300):
        path = lot.choice(paths)
        spoilt = sealed.disk.copy()
        if not spoilt.file(path):
            continue
        position, bit = lot.randrange(len(spoilt.file(path))), lot.randrange(8)
        spoilt.file(path)[position] ^= 1 << bit
        directory = DataDirectory(RecordingFiles(spoilt), DATA, CONFIG)
        log = directory.logs[ORDERS]
        assert stored_batches(log) == batches, (path, position, bit)
        assert answers(log) == expected, (path, position, bit)


@pytest.mark.parametrize("size", [64, 512, 4096])
def test_a_misplaced_chunk_is_found_and_what_is_around_it_is_served(sealed: Sealed, size: int) -> None:
    lot = random.Random(size)
    for _ in range(100):
        spoilt = sealed.disk.copy()
        content = spoilt.file(sealed.path)
        source, target = lot.randrange(len(content) - size), lot.randrange(len(content) - size)
        if content[source : source + size] == content[target : target + size]:
            continue
        content[target : target + size] = content[source : source + size]
        log = Sealed(spoilt, sealed.batches, sealed.places).open()
        found = stored_batches(log)
        untouched = {offset for start, end, offset in sealed.places if end <= target or start >= target + size}
        assert all(sealed.batches[offset] == data for offset, data in found.items())
        assert untouched <= found.keys()


def test_a_segment_with_a_stale_tail_serves_what_is_right(sealed: Sealed) -> None:
    """A run of batches was written over the one before it: each CRC is right, and the offsets give it away."""
    first, second = sealed.places[3], sealed.places[4]
    spoilt = sealed.disk.copy()
    content = spoilt.file(sealed.path)
    size = min(first[1] - first[0], second[1] - second[0])
    content[second[0] : second[0] + size] = content[first[0] : first[0] + size]
    found = stored_batches(Sealed(spoilt, sealed.batches, sealed.places).open())
    assert found == {offset: data for offset, data in sealed.batches.items() if offset != second[2]}
