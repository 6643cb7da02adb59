"""Appending: against writing the same bytes without a log, and with a long history against none.

A log checks the CRC of each batch, gives it its offset and epoch, keeps indexes and sums every byte once more for the
sums file, all of which bare writing does not. Nothing is synced in the timed part, and the amounts are small enough
for the system to keep them in memory: what is measured is the log, not the disk.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from bench.harness.batches import NOW_MS, idempotent_batches, some_batches, take
from bench.harness.measure import Bench, Demand, Figure, compare
from tailrace.log.log import Log

MB = 1 << 20
KB = 1 << 10
GB = 1 << 30


def _append_seconds(log: Log, batches: list[bytearray], times: int) -> float:
    append = log.append
    start = perf_counter()
    for _ in range(times):
        for batch in batches:
            append(batch, NOW_MS)
    return perf_counter() - start


def _write_seconds(descriptor: int, batches: list[bytearray], times: int) -> float:
    write = os.write
    start = perf_counter()
    for _ in range(times):
        for batch in batches:
            write(descriptor, batch)
    return perf_counter() - start


def bandwidth(bench: Bench) -> list[Figure]:
    """1 MB batches, in new files each round: one over and over, and several in turn that no CPU keeps at hand.

    How far the two are apart is a matter of caches: a log goes through the bytes twice, and where they come from
    further away each time, that costs it more than it costs bare writing.
    """
    same = _bandwidth(bench, "append-bandwidth/1mb", "append, 1 MB batches", 1, Demand("ratio", "least", 0.8))
    return [same, _bandwidth(bench, "append-bandwidth/1mb-in-turn", "the same, 8 batches in turn", 8, None)]


def _bandwidth(bench: Bench, name: str, title: str, count: int, demanded: Demand | None) -> Figure:
    batches = some_batches(MB, count)
    times = bench.pick(256, 128) // count
    megabytes = times * count * MB / 1e6

    def ours() -> float:
        with bench.place.log() as log:
            return megabytes / _append_seconds(log, batches, times)

    def bare() -> float:
        with bench.place.file() as descriptor:
            return megabytes / _write_seconds(descriptor, batches, times)

    appended, written = bench.take_turns(title, bench.pick(20, 8), ours, bare)
    note = f"{megabytes:.0f} MB a round, unsynced; includes two CRC-32C passes over every byte"
    return compare(name, title, "MB/s", appended, written, "os.write()", demanded=demanded, note=note)


def cost(bench: Bench) -> list[Figure]:
    """1 KB batches: what one append costs on top of the system call."""
    batches = some_batches(KB, 100)
    times = bench.pick(100, 50)
    micros = 1e6 / (times * len(batches))
    sequenced = idempotent_batches(KB)

    def ours() -> float:
        with bench.place.log() as log:
            return _append_seconds(log, batches, times) * micros

    def idempotent() -> float:
        fresh = take(sequenced, times * len(batches))
        with bench.place.log() as log:
            return _append_seconds(log, fresh, 1) * micros

    def bare() -> float:
        with bench.place.file() as descriptor:
            return _write_seconds(descriptor, batches, times) * micros

    appended, sequential, written = bench.take_turns("append cost", bench.pick(20, 8), ours, idempotent, bare)
    return [
        compare(
            "append-cost/1kb",
            "append, one 1 KB batch",
            "µs",
            appended,
            written,
            "os.write()",
            kind="difference",
            demanded=Demand("difference", "most", 15),
        ),
        compare(
            "append-cost/1kb-idempotent",
            "the same, idempotent producer",
            "µs",
            sequential,
            written,
            "os.write()",
            kind="difference",
        ),
    ]


def history(bench: Bench) -> list[Figure]:
    """1 KB appends to a log with gigabytes behind it and to a new one, a few hundred at a time in turns."""
    wanted = bench.pick(10, 1) * GB
    size = min(wanted, max(GB, bench.place.free_bytes // 2 // GB * GB))
    batches = some_batches(KB, 100)
    times = 10
    thousands = times * len(batches) / 1e3
    with _log_with_history(bench, size) as long, bench.place.log() as new:
        before, after = bench.take_turns(
            "history",
            bench.pick(200, 100),
            lambda: thousands / _append_seconds(new, batches, times),
            lambda: thousands / _append_seconds(long, batches, times),
        )
        segments = len(long.segments)
    note = f"{size / GB:.0f} GiB in {segments} segments" + (" (10 GiB in a full run)" if size < 10 * GB else "")
    figure = compare(
        "history/1kb",
        "append rate, long history",
        "k/s",
        after,
        before,
        "a new log",
        demanded=Demand("ratio", "least", 0.95),
        note=note,
    )
    return [figure]


@contextmanager
def _log_with_history(bench: Bench, size: int) -> Iterator[Log]:
    """Real batches in real segments, on disk."""
    batches = some_batches(MB, 16)
    with bench.place.log() as log:
        while log.size < size:
            bench.tell(f"history: {log.size / GB:.1f} of {size / GB:.0f} GiB written")
            _append_seconds(log, batches, 16)
            log.flush()  # often, so that the system never slows the writer down to catch up
        log.checkpoint(NOW_MS)
        yield log
