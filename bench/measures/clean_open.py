"""Opening a data directory that was closed cleanly, with many partitions in it.

Each opening runs in a process of its own, which has opened nothing before; Python's start is not counted. Measured
against listing the same directories and reading the same small files without understanding them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench.harness.batches import NOW_MS, some_batches
from bench.harness.measure import Bench, Demand, Figure, Sample, compare
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.names import TopicPartition

PARTITIONS = 2_000
BATCHES = 5
_ROOT = Path(__file__).parents[2]


def clean_open(bench: Bench) -> list[Figure]:
    closing: list[float] = []

    def ours() -> float:
        opened, closed = _in_a_child(path)
        closing.append(closed)
        return opened

    with bench.place.directory() as path:
        bench.tell(f"opening: making {PARTITIONS:,} partitions")
        _make(path)
        opened, listed = bench.take_turns("opening", bench.pick(5, 3), ours, lambda: _bare_seconds(path))
    return [
        compare(
            "opening/clean",
            f"open {PARTITIONS:,} clean partitions",
            "s",
            opened,
            listed,
            "list + read alone",
            demanded=Demand("ours", "most", 2.0),
            note=f"{BATCHES} batches of 1 KB each, page cache warm, in a new process",
        ),
        Figure("opening/close", "close them again", "s", Sample.of(closing), note="nothing was appended"),
    ]


def _make(path: str) -> None:
    batches = some_batches(1024, BATCHES)
    directory = DataDirectory(OperatingSystemFiles(), path)
    for number in range(PARTITIONS):
        log = directory.create(TopicPartition("bench", number))
        for batch in batches:
            log.append(batch, NOW_MS)
    directory.close(NOW_MS)


def _in_a_child(path: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.measures.clean_open", path]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    opened, closed = json.loads(done.stdout)
    return opened, closed


def _open_and_close(path: str) -> tuple[float, float]:
    start = perf_counter()
    directory = DataDirectory(OperatingSystemFiles(), path)
    opened = perf_counter()
    assert directory.was_clean, "the directory was not closed cleanly"
    assert len(directory.logs) == PARTITIONS
    directory.close(NOW_MS)
    return opened - start, perf_counter() - opened


def _bare_seconds(path: str) -> float:
    """Every file but the logs: what a clean start may have to look at."""
    start = perf_counter()
    for partition in os.scandir(path):
        if partition.is_dir():
            for entry in os.scandir(partition):
                entry.stat()
                if not entry.name.endswith(".log"):
                    _read(entry.path)
    return perf_counter() - start


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    print(json.dumps(_open_and_close(sys.argv[1])))
