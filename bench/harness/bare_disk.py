"""The disk without a log, to compare with: writes, syncs, and a page cache that is made to forget."""

import os
import time
from pathlib import Path

from bench.harness.measure import Bench

GB = 1e9


def bare_writes(bench: Bench, size: int | None = None) -> float:
    """CPU seconds for each GB that is written to a new file, which is then removed: about as much as a load writes."""
    size = size or bench.pick(5, 2) << 29
    chunk = os.urandom(1 << 20)
    with bench.place.directory() as path:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            cpu = time.process_time()
            for position in range(0, size, len(chunk)):
                os.pwrite(descriptor, chunk, position)
            return (time.process_time() - cpu) / (size / GB)
        finally:
            os.close(descriptor)
            os.unlink(path)


def bare_syncs(bench: Bench, number: int) -> list[float]:
    times = []
    with bench.place.directory() as path:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            for _ in range(number):
                start = time.perf_counter()
                os.write(descriptor, bytes(170))
                os.fdatasync(descriptor)
                times.append(time.perf_counter() - start)
        finally:
            os.close(descriptor)
            os.unlink(path)
    return times


def forget_cached(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
