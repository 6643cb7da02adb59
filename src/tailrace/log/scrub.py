"""Scrubbing: reads sealed segments again, to find bit rot before a reader does.

A job reads chunks of sealed segments from the disk, past the page cache, and compares them with the checksum file of
their segment; without one, it checks each batch's own CRC. A chunk that has changed is no longer trusted: the check
that precedes each read runs again and finds the damaged batches, and from then on reading those raises an error. The
job also finds records that are missing between two segments. It compares the files beside a segment with the segment's
checksums; a corrupt one is rebuilt when it is next needed.

The page cache is left as it was: cached chunks are cached again, others are dropped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.log.disk.interface import File, Files, join, read_whole, write_whole
from tailrace.log.files.checksums import CHUNK_BYTES, SegmentChecksums
from tailrace.log.layout.names import CHECKSUMS, INDEX, TIME_INDEX, TRANSACTION_INDEX, TopicPartition, numbered
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment

_PAGE_BYTES = 4096


class ScrubChunk(NamedTuple):
    """A chunk of a sealed segment, by the position where it begins."""

    partition: TopicPartition
    log: Log
    segment: Segment
    start: int

    @property
    def end(self) -> int:
        return min(self.start + CHUNK_BYTES, self.segment.size)

    @property
    def is_there(self) -> bool:
        """Whether the segment's files still have its names: not if it was deleted, or is being or was compacted."""
        return self.log.owns_its_names and not self.log.is_removed and self.segment in self.log.segments


class ScrubJob:
    """Scrubs some chunks. `note`, if given, is a file and its new contents. See `log/jobs.py` for the three steps."""

    def __init__(self, files: Files, chunks: Sequence[ScrubChunk], note: tuple[str, bytes] | None = None) -> None:
        self.chunks = chunks
        self.scrubbed_bytes = 0
        self.damage: list[str] = []
        self.faults: list[str] = []
        self._files = files
        self._note = note

    def run(self) -> None:
        for chunk in self.chunks:
            self._scrub(chunk)
        if self._note is not None:
            try:
                write_whole(self._files, *self._note, sync=False)  # if it is lost, some chunks are read again
            except OSError as error:
                self.faults.append(f"cannot write {self._note[0]}: {error}")

    def finish(self) -> None:
        """Does nothing: the damage was noted at the segments, where readers see it."""

    def _scrub(self, chunk: ScrubChunk) -> None:
        if not chunk.is_there:
            return
        segment, faults = chunk.segment, list[str]()
        known = chunk.log.damage
        try:
            if chunk.start == 0:
                faults = self._corrupt_derived_files(chunk)
                chunk.log.find_missing_around(segment)
            if chunk.end > chunk.start:
                self._read_again(chunk)
        except OSError as error:
            where = f"{chunk.partition}/{segment.name}, byte {chunk.start} to {chunk.end}"
            faults.append(f"cannot read {where}: {error}")
        if not chunk.is_there:
            return  # the files may be those of another segment
        self.scrubbed_bytes += chunk.end - chunk.start
        self.faults += faults
        new = [damage for damage in chunk.log.damage if damage not in known]
        self.damage += [str(damage._replace(file=f"{chunk.partition}/{damage.file}")) for damage in new]

    def _read_again(self, chunk: ScrubChunk) -> None:
        segment, start, end = chunk.segment, chunk.start, chunk.end
        checksums = segment.derived_files.read_checksums()
        data = _read_from_disk(segment.log, start, end - start)
        if (
            checksums is not None
            and checksums.log_size == segment.size
            and checksums.chunk_is_intact(start // CHUNK_BYTES, data)
        ):
            return
        segment.checks.distrust(start, end, segment.size)
        segment.check(start, end)

    def _corrupt_derived_files(self, chunk: ScrubChunk) -> list[str]:
        base_offset = chunk.segment.base_offset
        name = f"{chunk.partition}/{numbered(base_offset, '')}"
        data = {
            suffix: self._read_whole_from_disk(join(chunk.log.directory, numbered(base_offset, suffix)))
            for suffix in (CHECKSUMS, INDEX, TIME_INDEX, TRANSACTION_INDEX)
        }
        encoded = data.pop(CHECKSUMS)
        checksums = SegmentChecksums.decode(encoded or b"")
        if checksums is None:
            return [] if encoded is None else [f"{name}{CHECKSUMS} will be rebuilt"]
        prefixes = {
            INDEX: checksums.offset_index,
            TIME_INDEX: checksums.time_index,
            TRANSACTION_INDEX: checksums.transaction_index,
        }
        corrupt = [suffix for suffix, prefix in prefixes.items() if not prefix.matches(data[suffix] or b"")]
        return [f"{name}{suffix} will be rebuilt" for suffix in corrupt]

    def _read_whole_from_disk(self, path: str) -> bytes | None:
        file = self._files.open(path)
        try:
            file.forget_cached()
        except FileNotFoundError:
            return None
        finally:
            file.close()
        return read_whole(self._files, path)


def _read_from_disk(file: File, position: int, size: int) -> bytes:
    ends = position, max(position, position + size - _PAGE_BYTES)
    is_cached = all(file.read_cached_at(at, min(_PAGE_BYTES, size)) is not None for at in ends)
    file.forget_cached(position, size)
    data = file.read_at(position, size)
    if not is_cached:
        file.forget_cached(position, size)
    return data
