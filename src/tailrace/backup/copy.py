"""Copies bytes from one file to another: hashed on the way, at a bounded rate, and without evicting pages that a broker
needs from the page cache.

What is in the page cache when it is read stays there: somebody uses it. What had to come from the disk is forgotten at
once.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tailrace.log.disk.interface import Data, File
from tailrace.log.files.checksums import CHUNK_BYTES, ChunkSums

Progress = Callable[[int], None]


class CutShort(OSError):
    """The file has fewer bytes than it had."""


@dataclass(slots=True)
class Pace:
    """At most so many bytes a second; None for as fast as it goes."""

    bytes_per_second: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_at: float = 0.0

    def take(self, size: int) -> None:
        """Returns when these bytes may be moved."""
        if self.bytes_per_second is None:
            return
        now = self.clock()
        if self._free_at > now:
            self.sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self.bytes_per_second


@dataclass(slots=True)
class Copied:
    """What was copied so far, and who is told."""

    progress: Progress = lambda _: None
    pace: Pace = field(default_factory=Pace)
    stored_bytes: int = 0


def pieces(file: File, end: int) -> Iterator[Data]:
    """The first `end` bytes, a MiB at a time. Raises CutShort."""
    for position in range(0, end, CHUNK_BYTES):
        size = min(CHUNK_BYTES, end - position)
        data: Data | None = file.read_cached_at(position, size)
        if data is None:
            data = file.read_at(position, size)
            file.forget_cached(position, size)
        if len(data) < size:
            raise CutShort(None, f"it has {position + len(data)} bytes, and not {end}", file.path)
        yield data


def copy_bytes(source: File, target: File, end: int, copied: Copied, chunks: ChunkSums | None = None) -> str:
    """The first `end` bytes, in pieces; returns their SHA-256. `chunks`, if given, are summed, too."""
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
    """The same for bytes that are only looked at. Raises CutShort."""
    digest = hashlib.sha256()
    for piece in pieces(file, end):
        copied.pace.take(len(piece))
        digest.update(piece)
        copied.progress(len(piece))
    return digest.hexdigest()
