"""Where the data of a run lies: one temporary directory, with fresh logs and files in it on demand.

Whatever is handed out here is empty, its name is on disk, and it is removed at the end, together with the dirty pages
that it still has in memory. So no round pays for writing back what another one left.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log

VARIABLE = "TAILRACE_BENCH_DIR"
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


@dataclass(frozen=True, slots=True)
class FileSystem:
    name: str
    device: str

    @property
    def is_real_disk(self) -> bool:
        return self.name not in _IN_MEMORY


class Place:
    def __init__(self, path: str) -> None:
        self.path = path
        self.file_system = file_system_of(path)
        self.files = OperatingSystemFiles()
        self._numbers = count()

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    @contextmanager
    def directory(self) -> Iterator[str]:
        """Yields a new name for a directory, which the caller creates."""
        path = os.path.join(self.path, str(next(self._numbers)))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def log(self, config: LogConfig | None = None) -> Iterator[Log]:
        """A new log."""
        with self.directory() as path:
            log, _ = open_log(self.files, path, config or LogConfig(), recovery_point=0, start_offset=0)
            log.flush()
            try:
                yield log
            finally:
                let_go(log)

    @contextmanager
    def file(self) -> Iterator[int]:
        """The descriptor of a new file."""
        with self.directory() as path:
            os.mkdir(path)
            descriptor = os.open(os.path.join(path, "file"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.fsync(descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


def let_go(log: Log) -> None:
    """Gives up the descriptors of a log without closing it: as a crash would, and in no time."""
    for segment in log.segments:
        segment.close()


@contextmanager
def temporary_place() -> Iterator[Place]:
    base = os.environ.get(VARIABLE) or None
    if base is not None:
        os.makedirs(base, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=base, ignore_cleanup_errors=True) as path:
        yield Place(path)


def file_system_of(path: str) -> FileSystem:
    """By the mount that holds `path`; only Linux says."""
    best, found = "", FileSystem("unknown", "unknown")
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            device, mounted_at, name = line.split()[:3]
            inside = os.path.commonpath([mounted_at, os.path.realpath(path)]) == mounted_at
            if inside and len(mounted_at) >= len(best):
                best, found = mounted_at, FileSystem(name, device)
    return found
