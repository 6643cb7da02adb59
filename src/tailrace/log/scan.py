"""Walking the batches of a file that may be torn or rotten.

`Scan` goes from batch to batch for as long as each is whole, intact and where it should be, and then says where it
stopped and why. `find_next` picks up the thread behind bad bytes. `walk` does both in turn, to the end. None of
them decides what the bad bytes mean: recovery, reads and `log verify` do, each in its own way.

A batch is believed only if its offset follows from what came before: a CRC is right on a stale or misplaced batch
too.
"""

import re
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from tailrace.log.damage import DamagedRange
from tailrace.log.epochs import LeaderEpochs
from tailrace.log.files import File, name_of
from tailrace.records.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, MAGIC, BatchHeader
from tailrace.records.checksum import crc32c

WINDOW_BYTES = 4 << 20  # read at a time: large enough to hide the call, small enough to stay in a cache
_SEARCH_BYTES = 1 << 20
_OFFSETS_AHEAD_MAX = 1 << 32  # no segment spans more offsets than its indexes can count


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    window: memoryview
    at: int  # where the batch begins in `window`


class Scan:
    """The batches of `file` from `position` to `end`. Afterwards `position` and `expected` are where it stopped,
    `trouble` why.
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
    ) -> None:
        self.file = file
        self.position = position
        self.end = end
        self.expected = expected
        self.trouble: str | None = None
        self._gaps = gaps
        self._epochs = epochs
        self._epoch: int | None = None
        self._epoch_end: float = expected  # looked up at the first batch

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
            size = LENGTH_END + header.length
            self.trouble = self._fault(header)
            if self.trouble is not None:
                return
            if len(window) - at < size:
                wanted = size
                continue
            wanted = HEADER_SIZE
            if crc32c(window[at + CRC_START : at + size]) != header.crc:
                self.trouble = "its CRC-32C does not match"
                return
            if header.base_offset != self.expected and self._overtakes(header):
                self.trouble = f"its base offset is {header.base_offset}, beyond that of the batch behind it"
                return
            self.position += size
            self.expected = header.base_offset + header.last_offset_delta + 1
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
        if header.base_offset != self.expected and (not self._gaps or header.base_offset < self.expected):
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


def walk(
    file: File,
    position: int,
    end: int,
    expected: int,
    *,
    gaps: bool = False,
    epochs: LeaderEpochs | None = None,
    anchors: Sequence[int] = (),
    end_offset: int | None = None,
) -> Iterator[FoundBatch | DamagedRange]:
    """Every batch from `position` to `end` and, between them, every range of bytes that is none, in order.

    `end_offset` is the offset at which the file is known to end, if it is: damage that lasts to the end is named by
    it.
    """
    name = name_of(file.path)
    while True:
        scan = Scan(file, position, end, expected, gaps=gaps, epochs=epochs)
        yield from scan
        if scan.trouble is None:
            return
        bad, first, reason = scan.position, scan.expected, scan.trouble
        follower = find_next(file, bad, end, first, gaps=gaps, epochs=epochs, anchors=anchors)
        if follower is None:
            last = max(first, (end_offset or 0) - 1)
            yield DamagedRange(name, bad, end - bad, first, last, reason)
            return
        position, expected = follower
        yield DamagedRange(name, bad, position - bad, first, expected - 1, reason)


def find_next(
    file: File,
    position: int,
    end: int,
    expected: int,
    *,
    gaps: bool = False,
    epochs: LeaderEpochs | None = None,
    anchors: Sequence[int] = (),
) -> tuple[int, int] | None:
    """Where the first batch behind the bad one at `position` begins, and its offset; None if no batch follows.

    A record may hold the bytes of a whole batch, so a valid batch alone proves nothing. It is believed if the bad
    batch's own header leads to it, or if the batches from there on lead to a place where one is known to begin
    (`anchors`) or to `end`; failing that, if at least two follow each other. Inside of what the bad batch claims as
    its own, only if the claim is wrong. Two batches with later offsets may also stand just here: then no bytes are
    bad, but records are missing.
    """
    bad = header_at(file, position)
    if (follower := _follower(file, position, end, expected, epochs, bad)) is not None:
        return follower
    known = {*anchors, end}
    second_best: tuple[int, int] | None = None
    for candidate, offset in _candidates(file, position, end, expected):
        count, reached = _follow(Scan(file, candidate, end, offset, gaps=gaps, epochs=epochs), known)
        if candidate == position:
            if count >= 2 and offset > expected:
                return candidate, offset
        elif count and not _is_inside(file, position, expected, bad, candidate):
            if candidate in known or reached in known:
                return candidate, offset
            if count >= 2 and second_best is None:
                second_best = candidate, offset
    return second_best


def _is_inside(file: File, position: int, expected: int, bad: BatchHeader | None, candidate: int) -> bool:
    """Whether a candidate is part of the bad batch: it lies before the end that its header claims, and rightly so.

    A header that belongs elsewhere has no claim. And the claim is wrong if the bytes up to the candidate are all that
    the batch's CRC covers: then only its length is bad.
    """
    if bad is None or bad.magic != MAGIC or bad.base_offset != expected or candidate >= position + bad.size:
        return False
    start = position + CRC_START
    return crc32c(file.read_at(start, max(0, candidate - start))) != bad.crc


def _follow(scan: Scan, known: set[int]) -> tuple[int, int]:
    """How many batches lead from where `scan` begins to a known place, or to where they break off, and that place."""
    count = 0
    for _ in scan:
        count += 1
        if scan.position in known:
            break
    return count, scan.position


def _follower(
    file: File, position: int, end: int, expected: int, epochs: LeaderEpochs | None, bad: BatchHeader | None
) -> tuple[int, int] | None:
    """The batch that the bad one's header leads to, if its offset is just the one that should follow."""
    if bad is None or bad.length < LENGTH_MIN or bad.last_offset_delta < 0:
        return None
    follower, offset = position + bad.size, expected + bad.last_offset_delta + 1
    for _ in Scan(file, follower, end, offset, epochs=epochs):
        return follower, offset
    return None


def _candidates(file: File, position: int, end: int, expected: int) -> Iterator[tuple[int, int]]:
    """Places where a batch with a later offset might begin: the upper half of its offset, and the magic byte, are
    known.
    """
    halves = {(expected >> 32).to_bytes(4), ((expected + _OFFSETS_AHEAD_MAX) >> 32).to_bytes(4)}
    pattern = re.compile(b"(?=(?:" + b"|".join(map(re.escape, halves)) + b").{12}\x02)", re.DOTALL)
    while position + HEADER_SIZE <= end:
        window = file.read_at(position, min(_SEARCH_BYTES, end - position))
        if len(window) < HEADER_SIZE:
            return
        for match in pattern.finditer(window, 0, len(window) - HEADER_SIZE + 1 + 16):
            at = match.start()
            if at + HEADER_SIZE > len(window):
                break
            header = BatchHeader._make(HEADER.unpack_from(window, at))
            plausible = LENGTH_MIN <= header.length <= end - position - at - LENGTH_END
            if plausible and expected <= header.base_offset < expected + _OFFSETS_AHEAD_MAX:
                yield position + at, header.base_offset
        position += len(window) - HEADER_SIZE + 1
