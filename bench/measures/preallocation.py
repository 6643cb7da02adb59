"""Whether to preallocate segments, measured without a log: four ways to have room for what is appended.

    growth         the file grows with each write; its size goes to disk with each sync
    reserved       fallocate with KEEP_SIZE: the blocks are there, the size grows
    extended       posix_fallocate: blocks and size are there, reading zeros; each first write still marks its blocks
    zeros          zeros were written and synced ahead: a sync has nothing but data to bring to disk, but all is
                   written twice

Information only. A log that is extended ahead looks torn after a crash, so recovery would have to find its end.
"""

import os
import sys
from collections.abc import Callable
from time import perf_counter

from bench.harness.batches import batch_of
from bench.harness.measure import Bench, Figure, compare, percentile
from tailrace.log.disk.system_calls import reserve

KB = 1 << 10
MB = 1 << 20

Prepare = Callable[[int, int], None]


def _growth(descriptor: int, size: int) -> None:
    """Nothing is done ahead."""


def _reserved(descriptor: int, size: int) -> None:
    if not reserve(descriptor, 0, size):
        raise OSError("this file system has no blocks behind the end of a file, or nothing to spare")


def _extended(descriptor: int, size: int) -> None:
    os.posix_fallocate(descriptor, 0, size)


def _zeros(descriptor: int, size: int) -> None:
    for position in range(0, size, MB):
        os.pwrite(descriptor, bytes(min(MB, size - position)), position)


WAYS: dict[str, Prepare] = {"growth": _growth, "reserved": _reserved, "extended": _extended, "zeros": _zeros}


def ways(bench: Bench) -> list[Figure]:
    if sys.platform != "linux":
        return []
    return [*_latency(bench), *_throughput(bench)]


def _latency(bench: Bench) -> list[Figure]:
    """1 KB writes, each synced, in turns; p50 and p99 of each round."""
    rounds, times, batch = bench.pick(9, 5), bench.pick(300, 60), bytes(batch_of(KB))
    p99: dict[str, list[float]] = {way: [] for way in WAYS}

    def side(way: str) -> Callable[[], float]:
        def run() -> float:
            values = _synced_writes(bench, WAYS[way], batch, times)
            p99[way].append(percentile(values, 99))
            return percentile(values, 50)

        return run

    p50 = dict(zip(WAYS, bench.take_turns("preallocation, latency", rounds, *map(side, WAYS)), strict=True))
    counted = {way: values[1:] for way, values in p99.items()}
    return [*_figures("p50", "1 KB write + fdatasync p50", "µs", p50), *_figures("p99", "… p99", "µs", counted)]


def _synced_writes(bench: Bench, prepare: Prepare, batch: bytes, times: int) -> list[float]:
    values = []
    with bench.place.file() as descriptor:
        prepare(descriptor, times * len(batch))
        os.fsync(descriptor)
        for number in range(times):
            start = perf_counter()
            os.pwrite(descriptor, batch, number * len(batch))
            os.fdatasync(descriptor)
            values.append((perf_counter() - start) * 1e6)
    return values


def _throughput(bench: Bench) -> list[Figure]:
    """1 MB writes with one sync at the end, which counts."""
    rounds, times, batch = bench.pick(7, 3), bench.pick(128, 64), bytes(batch_of(MB))

    def side(way: str) -> Callable[[], float]:
        return lambda: times * MB / 1e6 / _sequential_seconds(bench, WAYS[way], batch, times)

    rates = dict(zip(WAYS, bench.take_turns("preallocation, throughput", rounds, *map(side, WAYS)), strict=True))
    return _figures("throughput", "1 MB writes, one sync", "MB/s", rates)


def _sequential_seconds(bench: Bench, prepare: Prepare, batch: bytes, times: int) -> float:
    with bench.place.file() as descriptor:
        prepare(descriptor, times * len(batch))
        os.fsync(descriptor)
        start = perf_counter()
        for number in range(times):
            os.pwrite(descriptor, batch, number * len(batch))
        os.fdatasync(descriptor)
        return perf_counter() - start


def _figures(name: str, title: str, unit: str, values: dict[str, list[float]]) -> list[Figure]:
    plain = values["growth"]
    return [
        compare(f"preallocation/{name}-{way}", f"{title}, {way}", unit, found, plain, "plain growth")
        for way, found in values.items()
        if way != "growth"
    ]
