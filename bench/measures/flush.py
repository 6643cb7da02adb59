"""Flushing: what an append costs that must be on disk, alone and in company.

Group commit is measured with two groups of clients. Each client appends 1 KB and waits until that is on disk before it
appends again: while the flush for one group is under way in a thread, the other group appends. It stands against a
flush after each append.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from bench.harness.batches import NOW_MS, batch_of
from bench.harness.measure import Bench, Figure, compare, percentile
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log

KB = 1 << 10
GROUPS = (8, 64, 512)


def group_commit(bench: Bench) -> list[Figure]:
    batch = batch_of(KB)
    seconds = bench.pick(10, 3) / 10
    sides = [partial(_flush_each, bench, batch, seconds)]
    sides += [partial(_flush_together, bench, batch, seconds, size) for size in GROUPS]
    alone, *together = bench.take_turns("group commit", bench.pick(9, 5), *sides)
    return [
        compare(
            f"group-commit/{size}",
            f"group commit, {size} waiters a flush",
            "appends/s",
            rates,
            alone,
            "flush after each",
            note="1 KB appends, acknowledged when on disk; another group appends meanwhile"
            if size == GROUPS[0]
            else "",
        )
        for size, rates in zip(GROUPS, together, strict=True)
    ]


def _flush_each(bench: Bench, batch: bytearray, seconds: float) -> float:
    with bench.place.log() as log:
        start, appended = perf_counter(), 0
        while (now := perf_counter()) - start < seconds:
            log.append(batch, NOW_MS)
            log.flush()
            appended += 1
        return appended / (now - start)


def _flush_together(bench: Bench, batch: bytearray, seconds: float, size: int) -> float:
    """Acknowledged appends per second."""
    with bench.place.log() as log, GroupCommit(log) as group_commit:
        start = perf_counter()
        group_commit.append(batch, size)
        group_commit.begin()
        while (now := perf_counter()) - start < seconds:
            group_commit.append(batch, size)
            group_commit.finish()
            group_commit.begin()
        acknowledged = group_commit.acknowledged
        group_commit.finish()
        return acknowledged / (now - start)


class GroupCommit:
    """The owner of a log, with one thread to flush it in."""

    def __init__(self, log: Log) -> None:
        self.acknowledged = 0
        self._log = log
        self._queue = FlushQueue()
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "GroupCommit":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def append(self, batch: bytearray, times: int) -> None:
        for _ in range(times):
            appended = self._log.append(batch, NOW_MS)
            self._queue.appended(self._log, NOW_MS)
            self._queue.when_flushed(self._log, appended.last_offset + 1, self._acknowledge)

    def _acknowledge(self, error: LogError | None) -> None:
        assert error is None, error
        self.acknowledged += 1

    def begin(self) -> None:
        job = self._queue.next_job()
        assert job is not None, "appends wait, and no flush is under way"
        self._thread.submit(self._run, job)

    def _run(self, job: Any) -> None:
        job.run()
        self._done.put(job)

    def finish(self) -> None:
        self._queue.finished(self._done.get())


def fdatasync(bench: Bench) -> list[Figure]:
    """This disk: 1 KB written and synced, 500 times in each of a few rounds, by us and without us."""
    batch, times = batch_of(KB), bench.pick(500, 100)
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
