"""Scrubbing: reads sealed segments again, so that bit rot is found before a reader meets it.

A job reads pieces of sealed segments from the disk, not from what the system remembers of it, and holds them against
the sums of their segment; where there are none, each batch against its own CRC. Where a piece is not what it was, it is
distrusted: the check that readers wait for is made again, finds the batches to blame, and whoever asks for them is told
from then on. What is missing between two segments is found, too. The files beside a segment are held against its sums;
if one is rotten, it is built anew when it is next needed.

What is in the page cache is put there for somebody, so it is there again afterwards; what is not does not stay.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.log.disk.interface import File, Files, join, read_whole, write_whole
from tailrace.log.files.checksums import CHUNK_BYTES, Sums
from tailrace.log.layout.names import INDEX, SUMS, TIME_INDEX, TRANSACTION_INDEX, TopicPartition, numbered
from tailrace.log.log import Log
from tailrace.log.segment.segment import Segment

_PAGE_BYTES = 4096


class Piece(NamedTuple):
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
        """Whether its files are those of that name: not so once the segment was deleted or compacted, or is being."""
        return self.log.owns_its_names and not self.log.is_removed and self.segment in self.log.segments


class ScrubJob:
    """See `log/jobs.py` for the three steps. `note`, if given, is a file and what is to stand in it from now on."""

    def __init__(self, files: Files, pieces: Sequence[Piece], note: tuple[str, bytes] | None = None) -> None:
        self.pieces = pieces
        self.scrubbed_bytes = 0
        self.damage: list[str] = []
        self.faults: list[str] = []
        self._files = files
        self._note = note

    def run(self) -> None:
        for piece in self.pieces:
            self._scrub(piece)
        if self._note is not None:
            try:
                write_whole(self._files, *self._note, sync=False)  # if it is lost, some is read again
            except OSError as error:
                self.faults.append(f"{self._note[0]} cannot be written: {error}")

    def finish(self) -> None:
        """Readers know already: what was found is with the segments."""

    def _scrub(self, piece: Piece) -> None:
        if not piece.is_there:
            return
        segment, faults = piece.segment, list[str]()
        known = piece.log.damage
        try:
            if piece.start == 0:
                faults = self._rotten_derived_files(piece)
                piece.log.find_missing_around(segment)
            if piece.end > piece.start:
                self._read_again(piece)
        except OSError as error:
            where = f"{piece.partition}/{segment.name}, byte {piece.start} to {piece.end}"
            faults.append(f"{where}, cannot be read: {error}")
        if not piece.is_there:
            return  # what was found may be another's
        self.scrubbed_bytes += piece.end - piece.start
        self.faults += faults
        new = [damage for damage in piece.log.damage if damage not in known]
        self.damage += [str(damage._replace(file=f"{piece.partition}/{damage.file}")) for damage in new]

    def _read_again(self, piece: Piece) -> None:
        segment, start, end = piece.segment, piece.start, piece.end
        sums = segment.derived_files.read_sums()
        data = _read_from_disk(segment.log, start, end - start)
        if sums is not None and sums.log_size == segment.size and sums.chunk_is_intact(start // CHUNK_BYTES, data):
            return
        segment.checks.distrust(start, end, segment.size)
        segment.check(start, end)

    def _rotten_derived_files(self, piece: Piece) -> list[str]:
        base_offset = piece.segment.base_offset
        name = f"{piece.partition}/{numbered(base_offset, '')}"
        data = {
            suffix: self._read_whole_from_disk(join(piece.log.directory, numbered(base_offset, suffix)))
            for suffix in (SUMS, INDEX, TIME_INDEX, TRANSACTION_INDEX)
        }
        encoded = data.pop(SUMS)
        sums = Sums.decode(encoded or b"")
        if sums is None:
            return [] if encoded is None else [f"{name}{SUMS} will be built anew"]
        prefixes = {INDEX: sums.offset_index, TIME_INDEX: sums.time_index, TRANSACTION_INDEX: sums.transaction_index}
        rotten = [suffix for suffix, prefix in prefixes.items() if not prefix.matches(data[suffix] or b"")]
        return [f"{name}{suffix} will be built anew" for suffix in rotten]

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
