"""Flushing: what an append costs that must be on disk, alone and in company.

Group commit is measured with clients that append 1 KB and wait until it is on disk before they append again. While one
flush is under way in a thread, those who are not waiting yet go on appending, and the next flush serves them all. It
stands against the same number of appends with a flush after each.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter

from bench.batches import NOW_MS, batch_of
from bench.harness import Bench, Figure, compare, percentile
from tailrace.log.jobs import FlushJob
from tailrace.log.log import Log

KB = 1 << 10
CLIENTS = (8, 64, 512)


def group_commit(bench: Bench) -> list[Figure]:
    batch = batch_of(KB)
    seconds = bench.pick(10, 4) / 10
    sides = [partial(_flush_each, bench, batch, seconds)]
    sides += [partial(_flush_together, bench, batch, seconds, number) for number in CLIENTS]
    alone, *together = bench.take_turns("group commit", bench.pick(9, 5), *sides)
    return [
        compare(
            f"group-commit/{number}",
            f"group commit, {number} clients",
            "appends/s",
            rates,
            alone,
            "flush after each",
            note="1 KB appends, acknowledged after the flush",
        )
        for number, rates in zip(CLIENTS, together, strict=True)
    ]


def _flush_each(bench: Bench, batch: bytearray, seconds: float) -> float:
    with bench.place.log() as log:
        start, appended = perf_counter(), 0
        while (now := perf_counter()) - start < seconds:
            log.append(batch, NOW_MS)
            log.flush()
            appended += 1
        return appended / (now - start)


def _flush_together(bench: Bench, batch: bytearray, seconds: float, clients: int) -> float:
    """Acknowledged appends per second: of the appends made, at most `clients` wait at any time."""
    with bench.place.log() as log, ThreadPoolExecutor(1) as thread:
        under_way: tuple[FlushJob, Future[None]] | None = None
        start = perf_counter()
        while (now := perf_counter()) - start < seconds:
            while log.end_offset - log.high_watermark < clients and not _is_done(under_way):
                log.append(batch, NOW_MS)
                under_way = under_way or _begin(log, thread)
            assert under_way is not None
            job, running = under_way
            running.result()
            job.finish()
            under_way = _begin(log, thread)
        acknowledged = log.high_watermark
        if under_way is not None:
            under_way[1].result()
        return acknowledged / (now - start)


def _begin(log: Log, thread: ThreadPoolExecutor) -> tuple[FlushJob, Future[None]] | None:
    job = log.begin_flush()
    return None if job is None else (job, thread.submit(job.run))


def _is_done(under_way: tuple[FlushJob, "Future[None]"] | None) -> bool:
    return under_way is not None and under_way[1].done()


def fdatasync(bench: Bench) -> list[Figure]:
    """This disk: 1 KB written and synced, 500 times in each of a few rounds, by us and without us."""
    batch, times = batch_of(KB), bench.pick(500, 200)
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    bench.take_turns(
        "fdatasync",
        bench.pick(9, 5),
        lambda: _note(ours, _flush_latencies(bench, batch, times)),
        lambda: _note(bare, _sync_latencies(bench, batch, times)),
    )
    return [
        compare(
            f"fdatasync/p{percent}",
            f"append 1 KB and flush, p{percent}",
            "µs",
            [percentile(values, percent) for values in ours[1:]],
            [percentile(values, percent) for values in bare[1:]],
            "write + fdatasync",
        )
        for percent in (50, 99)
    ]


def _note(rounds: list[list[float]], values: list[float]) -> float:
    rounds.append(values)
    return percentile(values, 50)


def _flush_latencies(bench: Bench, batch: bytearray, times: int) -> list[float]:
    with bench.place.log() as log:

        def step() -> None:
            log.append(batch, NOW_MS)
            log.flush()

        return _latencies(times, step)


def _sync_latencies(bench: Bench, batch: bytearray, times: int) -> list[float]:
    with bench.place.file() as descriptor:

        def step() -> None:
            os.write(descriptor, batch)
            os.fdatasync(descriptor)

        return _latencies(times, step)


def _latencies(times: int, step: Callable[[], None]) -> list[float]:
    """In microseconds."""
    values = []
    for _ in range(times):
        start = perf_counter()
        step()
        values.append((perf_counter() - start) * 1e6)
    return values
