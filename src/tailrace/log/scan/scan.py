"""Reads the batches of a file that may be torn or corrupt, for as long as each is intact and the one that is due.

A batch is believed only if it is whole and intact and its offset follows from what came before: a CRC is right on a
stale or misplaced batch too. Where that ends, `Scan` says where and why; `resync` finds the next trustworthy batch
after the bad bytes, and `walk` does both in turn.
"""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from tailrace.log.disk.interface import File
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.records.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, MAGIC, BatchHeader
from tailrace.records.checksum import crc32c

WINDOW_BYTES = 4 << 20  # read at a time: large enough to hide the call, small enough to stay in a cache

OFFSETS_AHEAD_MAX = 1 << 32  # no segment spans more offsets than its indexes can count


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    window: memoryview
    at: int  # where the batch begins in `window`


class Scan:
    """The batches of `file` from `position` to `end`. Afterwards `position` and `expected` are where it stopped,
    `trouble` why. Where there may be gaps, none leads to `limit` or beyond.
    """

    def __init__(
        self,
        file: File,
        position: int,
        end: int,
        expected: int,
        *,
        gaps: bool = False,
        epochs: LeaderEpochs | None = None,
        limit: int | None = None,
    ) -> None:
        self.file = file
        self.position = position
        self.end = end
        self.expected = expected
        self.trouble: str | None = None
        self._gaps = gaps
        self._limit: float = inf if limit is None else limit
        self._epochs = epochs
        self._epoch: int | None = None
        self._epoch_end: float = inf if epochs is None else expected  # looked up at the first batch

    def __iter__(self) -> Iterator[FoundBatch]:
        unpack, make = HEADER.unpack_from, BatchHeader._make
        window, start = memoryview(b""), self.position
        wanted = HEADER_SIZE
        while self.position < self.end:
            at = self.position - start
            if len(window) - at < wanted:
                start, at = self.position, 0
                window = self._read(wanted)
                if len(window) < wanted:
                    self.trouble = f"{self.end - self.position} bytes are left where the batch needs {wanted}"
                    return
            header = make(unpack(window, at))
            base_offset, length, epoch, magic, crc, _, delta, _, _, _, _, _, count = header
            if (  # what `_fault` looks for, in one go: it is asked only where something is new or wrong
                base_offset != self.expected
                or base_offset >= self._epoch_end
                or (epoch != self._epoch and self._epoch is not None)
                or magic != MAGIC
                or length < LENGTH_MIN
                or delta < 0
                or not 0 <= count <= delta + 1
            ):
                self.trouble = self._fault(header)
                if self.trouble is not None:
                    return
            size = LENGTH_END + length
            if len(window) - at < size:
                wanted = size
                continue
            wanted = HEADER_SIZE
            if crc32c(window[at + CRC_START : at + size]) != crc:
                self.trouble = "its CRC-32C does not match"
                return
            if base_offset != self.expected and self._overtakes(header):
                self.trouble = f"its base offset is {base_offset}, beyond that of the batch behind it"
                return
            self.position += size
            self.expected = base_offset + delta + 1
            yield FoundBatch(self.position - size, header, window, at)

    def _read(self, at_least: int) -> memoryview:
        """What is left of the file from here on, up to a window, or more where one batch needs more."""
        left = self.end - self.position
        if at_least > left:
            return memoryview(self.file.read_at(self.position, min(left, HEADER_SIZE)))
        return memoryview(self.file.read_at(self.position, min(max(WINDOW_BYTES, at_least), left)))

    def _overtakes(self, header: BatchHeader) -> bool:
        """Whether a batch behind a gap is followed by one that lies before it: then the gap is a bad base offset."""
        following = header_at(self.file, self.position + header.size)
        return (
            following is not None
            and following.magic == MAGIC
            and self.expected <= following.base_offset < header.next_offset
        )

    def _fault(self, header: BatchHeader) -> str | None:
        """Why a batch with this header cannot stand here."""
        if header.magic != MAGIC:
            return f"its magic byte is {header.magic}, not {MAGIC}"
        if header.length < LENGTH_MIN:
            return f"its length is {header.length}"
        if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"it claims {header.record_count} records in {header.last_offset_delta + 1} offsets"
        ahead = header.base_offset - self.expected
        is_beyond = ahead >= OFFSETS_AHEAD_MAX or header.next_offset > self._limit
        if ahead and (not self._gaps or ahead < 0 or is_beyond):
            return f"its base offset is {header.base_offset} where {self.expected} is due"
        if self._epochs is not None and header.base_offset >= self._epoch_end:
            self._epoch, end = self._epochs.stretch_at(header.base_offset)
            self._epoch_end = inf if end is None else end
        if self._epoch is not None and header.leader_epoch != self._epoch:
            return f"its leader epoch is {header.leader_epoch}, not {self._epoch}"
        return None


def header_at(file: File, position: int) -> BatchHeader | None:
    """The header that stands at `position`, unchecked; None where the file ends before it does."""
    data = file.read_at(position, HEADER_SIZE)
    return BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER_SIZE else None
