"""Recovery after a crash: how fast a log is scanned that has no checkpoint, its bytes in the page cache.

The scan checks every CRC and builds indexes, sums and producers. It is measured against reading the same bytes and
doing nothing with them (large batches), and against the least that Python can do for a batch (small ones): unpack the
header, sum the bytes, go on.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

from bench.harness.batches import NOW_MS, idempotent_batches, some_batches, take
from bench.harness.measure import Bench, Demand, Figure, compare
from bench.harness.place import let_go
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log
from tailrace.log.scan.scan import WINDOW_BYTES
from tailrace.records.batch import CRC_START, HEADER, LENGTH_END
from tailrace.records.checksum import crc32c

LARGE = 16 << 10
SMALL = 150
PRODUCERS = 50


def scan(bench: Bench) -> list[Figure]:
    rounds = bench.pick(9, 5)
    return [
        *_large(bench, bench.pick(1 << 30, 1 << 28), rounds),
        *_small(bench, bench.pick(500_000, 200_000), rounds),
        *_idempotent(bench, bench.pick(100_000, 30_000), rounds),
    ]


def _large(bench: Bench, size: int, rounds: int) -> list[Figure]:
    piece = _joined(some_batches(LARGE, 256))
    with _crashed_log(bench, (piece for _ in range(size // len(piece)))) as log:
        gigabytes = log.size / 1e9
        scanned, read = bench.take_turns(
            "recovery of 16 KB batches",
            rounds,
            lambda: gigabytes / _recovery_seconds(bench, log),
            lambda: gigabytes / _reading_seconds(log),
        )
    figure = compare(
        "recovery/16kb",
        "recovery scan, 16 KB batches",
        "GB/s",
        scanned,
        read,
        "read alone",
        demanded=Demand("ours", "least", 1.0),
        note=f"{gigabytes:.2f} GB, page cache warm",
    )
    return [figure]


def _small(bench: Bench, number: int, rounds: int) -> list[Figure]:
    piece = _joined(some_batches(SMALL, 1000))
    with _crashed_log(bench, (piece for _ in range(number // 1000))) as log:
        scanned, least = _batch_rates(bench, "recovery of small batches", log, number, rounds)
    figure = compare(
        "recovery/small",
        f"recovery scan, {SMALL} B batches",
        "k/s",
        scanned,
        least,
        "unpack + CRC",
        demanded=Demand("ours", "least", 300),
        note=f"{number:,} batches",
    )
    return [figure]


def _idempotent(bench: Bench, number: int, rounds: int) -> list[Figure]:
    """The same with producers to keep track of."""
    with _crashed_log(bench, take(idempotent_batches(SMALL, PRODUCERS), number)) as log:
        scanned, least = _batch_rates(bench, "recovery of idempotent batches", log, number, rounds)
    figure = compare(
        "recovery/small-idempotent",
        "the same, idempotent producers",
        "k/s",
        scanned,
        least,
        "unpack + CRC",
        note=f"{number:,} batches of {PRODUCERS} producers",
    )
    return [figure]


def _batch_rates(bench: Bench, what: str, log: Log, number: int, rounds: int) -> list[list[float]]:
    thousands = number / 1e3
    return bench.take_turns(
        what,
        rounds,
        lambda: thousands / _recovery_seconds(bench, log),
        lambda: thousands / _least_seconds(log),
    )


def _joined(batches: list[bytearray]) -> bytearray:
    return bytearray(b"".join(batches))


@contextmanager
def _crashed_log(bench: Bench, pieces: Iterable[bytearray]) -> Iterator[Log]:
    """A log in one segment, flushed and never checkpointed."""
    bench.tell("recovery: writing a log")
    with bench.place.log(LogConfig(segment_bytes=(1 << 31) - 1)) as log:
        for piece in pieces:
            log.append(piece, NOW_MS)
        log.flush()
        assert len(log.segments) == 1
        yield log


def _recovery_seconds(bench: Bench, log: Log) -> float:
    start = perf_counter()
    recovered, report = open_log(bench.place.files, log.directory, log.config, clean=False, recovery_point=0)
    seconds = perf_counter() - start
    assert report.scanned_bytes == log.size, "recovery found another log than was written"
    assert recovered.end_offset == log.end_offset
    let_go(recovered)
    return seconds


def _windows(log: Log, size: int) -> Iterator[bytes]:
    descriptor = os.open(log.active.log.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while window := os.read(descriptor, size):
            yield window
    finally:
        os.close(descriptor)


def _reading_seconds(log: Log) -> float:
    start = perf_counter()
    for _ in _windows(log, WINDOW_BYTES):
        pass
    return perf_counter() - start


def _least_seconds(log: Log) -> float:
    """Unpacks and sums each batch. As all have one size, windows can end where batches do."""
    unpack = HEADER.unpack_from
    start = perf_counter()
    for window in _windows(log, WINDOW_BYTES // SMALL * SMALL):
        view, at, end = memoryview(window), 0, len(window)
        while at < end:
            size = LENGTH_END + unpack(view, at)[1]
            crc32c(view[at + CRC_START : at + size])
            at += size
    return perf_counter() - start
