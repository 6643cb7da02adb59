"""Copies bytes from one file to another: hashed on the way, at a bounded rate, and without evicting pages that a broker
needs from the page cache.

Pages that are in the page cache before the copy stay there, because a broker uses them. Pages that had to come from the
disk are dropped at once.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tailrace.log.disk.interface import Data, File
from tailrace.log.files.checksums import CHUNK_BYTES, ChunkChecksums

Progress = Callable[[int], None]


class CutShort(OSError):
    """The file has fewer bytes than it had."""


@dataclass(slots=True)
class Pace:
    """Limits copying to a number of bytes per second; None for no limit."""

    bytes_per_second: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_at: float = 0.0

    def take(self, size: int) -> None:
        """Sleeps until this many more bytes may be moved."""
        if self.bytes_per_second is None:
            return
        now = self.clock()
        if self._free_at > now:
            self.sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self.bytes_per_second


@dataclass(slots=True)
class Copied:
    """Counts the bytes copied so far, and reports progress."""

    progress: Progress = lambda _: None
    pace: Pace = field(default_factory=Pace)
    stored_bytes: int = 0


def pieces(file: File, end: int) -> Iterator[Data]:
    """Yields the first `end` bytes, a MiB at a time. Raises CutShort."""
    for position in range(0, end, CHUNK_BYTES):
        size = min(CHUNK_BYTES, end - position)
        data: Data | None = file.read_cached_at(position, size)
        if data is None:
            data = file.read_at(position, size)
            file.forget_cached(position, size)
        if len(data) < size:
            raise CutShort(None, f"the file has {position + len(data)} bytes, expected {end}", file.path)
        yield data


def copy_bytes(source: File, target: File, end: int, copied: Copied, chunks: ChunkChecksums | None = None) -> str:
    """Copies the first `end` bytes, and returns their SHA-256. Adds them to `chunks`, if given."""
    digest, position = hashlib.sha256(), 0
    for piece in pieces(source, end):
        copied.pace.take(len(piece))
        digest.update(piece)
        if chunks is not None:
            chunks.update(piece)
        target.write_at(position, piece)
        position += len(piece)
        copied.progress(len(piece))
    return digest.hexdigest()


def sha256_of(data: Data) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(file: File, end: int, copied: Copied) -> str:
    """Returns the SHA-256 of the first `end` bytes without copying them. Raises CutShort."""
    digest = hashlib.sha256()
    for piece in pieces(file, end):
        copied.pace.take(len(piece))
        digest.update(piece)
        copied.progress(len(piece))
    return digest.hexdigest()
