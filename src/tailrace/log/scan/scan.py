"""Reads the batches of a file that may be torn or corrupt, as long as each one is intact and has the expected offset.

A batch counts only if it is whole and intact, and its offset follows from the batch before: the CRC of a stale or
misplaced batch is right, too. When that ends, `Scan` has the position and the reason; `resync` finds the next
trustworthy batch after the bad bytes, and `walk` uses both in turn.
"""

from collections.abc import Iterator, Sequence
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


class Boundary(NamedTuple):
    """A position where a batch begins, and its offset: for example the end of a segment's checksums."""

    position: int
    offset: int


class ScanRange(NamedTuple):
    """A range of a file, and what is known of the batches in it."""

    file: File
    position: int
    end: int
    expected: int  # the offset that is due at `position`
    gaps: bool = False  # between offsets
    epochs: LeaderEpochs | None = None  # that the batches have
    limit: int | None = None  # an offset that no batch of the file reaches beyond
    anchors: Sequence[int] = ()  # positions where batches are known to begin

    def after(self, position: int, expected: int) -> "ScanRange":
        """Returns the rest of the range, from this position and offset on."""
        return self._replace(position=position, expected=expected)


class Scan:
    """The batches of a range, in order. After the iteration, `position` and `expected` are where it stopped, and
    `trouble` is the reason. `gaps` allows gaps between offsets, but none that leads to `limit` or beyond.
    """

    def __init__(self, scanned: ScanRange) -> None:
        self.file = scanned.file
        self.position = scanned.position
        self.end = scanned.end
        self.expected = scanned.expected
        self.trouble: str | None = None
        self._gaps = scanned.gaps
        self._limit: float = inf if scanned.limit is None else scanned.limit
        self._epochs = scanned.epochs
        self._epoch: int | None = None
        self._epoch_end: float = inf if scanned.epochs is None else scanned.expected  # looked up at the first batch

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
                    self.trouble = f"{self.end - self.position} bytes are left, but the batch needs {wanted}"
                    return
            header = make(unpack(window, at))
            base_offset, length, epoch, magic, crc, _, delta, _, _, _, _, _, count = header
            if (  # the checks of `_fault` in one expression: it is called only if something is new or wrong
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
        """Returns the rest of the file, up to a window, but at least `at_least` bytes if the file has them."""
        left = self.end - self.position
        if at_least > left:
            return memoryview(self.file.read_at(self.position, min(left, HEADER_SIZE)))
        return memoryview(self.file.read_at(self.position, min(max(WINDOW_BYTES, at_least), left)))

    def _overtakes(self, header: BatchHeader) -> bool:
        """Returns whether the batch behind a gap is followed by one with a smaller offset: then its base offset is
        corrupt.
        """
        following = header_at(self.file, self.position + header.size)
        return (
            following is not None
            and following.magic == MAGIC
            and self.expected <= following.base_offset < header.next_offset
        )

    def _fault(self, header: BatchHeader) -> str | None:
        """Returns why a batch with this header cannot stand here, or None."""
        if header.magic != MAGIC:
            return f"its magic byte is {header.magic}, not {MAGIC}"
        if header.length < LENGTH_MIN:
            return f"its length is {header.length}"
        if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"it claims {header.record_count} records in {header.last_offset_delta + 1} offsets"
        ahead = header.base_offset - self.expected
        is_beyond = ahead >= OFFSETS_AHEAD_MAX or header.next_offset > self._limit
        if ahead and (not self._gaps or ahead < 0 or is_beyond):
            return f"its base offset is {header.base_offset}, but {self.expected} is due"
        if self._epochs is not None and header.base_offset >= self._epoch_end:
            self._epoch, end = self._epochs.range_at(header.base_offset)
            self._epoch_end = inf if end is None else end
        if self._epoch is not None and header.leader_epoch != self._epoch:
            return f"its leader epoch is {header.leader_epoch}, not {self._epoch}"
        return None


def header_at(file: File, position: int) -> BatchHeader | None:
    """Returns the unchecked header at `position`, or None if the file ends before it does."""
    data = file.read_at(position, HEADER_SIZE)
    return BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER_SIZE else None
