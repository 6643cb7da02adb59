"""Trust: which bytes of a segment were checked and may be served, and which were found damaged.

Bytes that this process appended, or that recovery walked through, are trusted. All others are checked before the first
read: a MiB at a time against the checksum file if there is one, else batch by batch. In a MiB whose checksum is wrong,
the damaged batch is searched for, so that one flipped bit costs one batch. Checked ranges are remembered; the scrubber
(`log/scrub.py`) finds bit rot that sets in later, and calls `distrust`.

Inserted, lost, doubled or swapped bytes shift the bytes behind them: the batches there are sound, but the index leads
into the middle of them and the checksum file is of no use. `ensure` finds that by the index entries in a MiB whose
checksum is wrong, and returns False: the segment then derives its index from the log (`Segment.check`).

Safe from any thread: the mutex guards what was found, and is never held while waiting for a disk.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.log.disk.interface import File, name_of
from tailrace.log.files.checksums import CHUNK_BYTES
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange, missing_records
from tailrace.log.scan.scan import Boundary, FoundBatch, ScanRange, header_at
from tailrace.log.scan.walk import walk
from tailrace.log.segment.derived import Derived


class Walked(NamedTuple):
    """A range of a segment that was walked, in bytes and in offsets, and the last offset of each batch by position."""

    start: int
    first_offset: int
    end: int
    next_offset: int
    batches: dict[int, int]


class Checks:
    def __init__(self, file: File, base_offset: int, trusted_from: int, epochs: LeaderEpochs | None) -> None:
        self._file = file
        self._base_offset = base_offset
        self._trusted_from = trusted_from
        self._epochs = epochs
        self._mutex = threading.Lock()
        self._ranges = Ranges()
        self.limit: int | None = None  # the base offset of the next segment, once there is one
        self.damage: tuple[
            DamagedRange, ...
        ] = ()  # by position; replaced as a whole, so that it can be read at any time

    def cover(self, start: int, end: int) -> bool:
        """Returns whether these bytes were checked, with either result."""
        if start >= self._trusted_from:
            return True
        with self._mutex:
            return self._ranges.cover(start, min(end, self._trusted_from))

    def are_sound(self, start: int, end: int) -> bool:
        """Returns whether these bytes were checked, and nothing in this segment is known to be damaged."""
        return not self.damage and self.cover(start, end)

    def trust(self, start: int, end: int) -> None:
        with self._mutex:
            self._ranges.add(start, end)

    def distrust(self, start: int, end: int, size: int) -> None:
        """Makes the next read of these bytes check them again. `size` is that of the segment, which no longer grows."""
        with self._mutex:
            self._ranges.add(self._trusted_from, size)
            self._trusted_from = size
            self._ranges.remove(start, end)

    def report(self, damage: DamagedRange) -> None:
        with self._mutex:
            if damage not in self.damage:
                self.damage = tuple(sorted((*self.damage, damage), key=lambda known: (known.position, known.length)))

    def truncate(self, at: int) -> None:
        """Forgets everything behind `at`: the file was truncated."""
        with self._mutex:
            self._ranges.truncate(at)
            self._trusted_from = min(self._trusted_from, at)
            self.damage = tuple(known for known in self.damage if known.position < at)

    def damage_at(self, position: int) -> DamagedRange | None:
        """Returns the damage at this position, or the damage of records that are missing just before it."""
        for known in self.damage:
            if known.position <= position < max(known.end, known.position + 1):
                return known
        return None

    def next_damage(self, position: int) -> int | None:
        """Returns where the first damage at or behind `position` begins."""
        number = bisect_right(self.damage, position - 1, key=lambda known: known.position)
        return self.damage[number].position if number < len(self.damage) else None

    def ensure(self, start: int, end: int, size: int, derived: Derived) -> bool:
        """Checks everything from `start` to `end`. On return, `damage` has what is bad in it. Returns False if the
        batches are not where the index of `derived` says: the caller must rebuild it from the log, and check again.
        """
        if self.cover(start, end):
            return True
        summed = derived.checksums.log_size if derived.checksums else 0
        if derived.checksums and start < summed and not self._check_chunks(start, min(end, summed), size, derived):
            return False
        if end > summed and not self.cover(max(start, summed), end):
            self._check_batches(max(start, summed), end, size, derived)
        return True

    def _check_chunks(self, start: int, end: int, size: int, derived: Derived) -> bool:
        checksums = derived.checksums
        assert checksums is not None
        for number in range(start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES + 1):
            low, high = checksums.chunk_bounds(number)
            if self.cover(low, high):
                continue
            if checksums.chunk_is_intact(number, self._file.read_at(low, high - low)):
                self.trust(low, high)
            elif not self._blame(low, high, size, derived):
                return False
        return True

    def _blame(self, low: int, high: int, size: int, derived: Derived) -> bool:
        """Finds the damage in a chunk whose checksum is wrong. If no single batch is found, none of these bytes is
        served. Returns False if batches were shifted.
        """
        walked = self._check_batches(low, high, size, derived)
        if not self._fits(derived, walked):
            return False
        if not any(known.position < high and max(known.end, known.position + 1) > low for known in self.damage):
            self.report(self._not_as_sealed(walked.start, walked.first_offset, walked.end, walked.next_offset))
        self.trust(low, high)
        return True

    def _fits(self, derived: Derived, walked: "Walked") -> bool:
        """Returns whether each index entry of this range leads to the batch that it names, or into the damage that
        hides it: a batch may also lie before or behind the damage that replaced it.
        """
        entries = derived.index.entries_between(walked.start, walked.end)
        return all(
            walked.batches.get(position) == last_offset or self._hides(position, last_offset)
            for last_offset, position in entries
        )

    def _hides(self, position: int, offset: int) -> bool:
        damage = self.damage_at(position)
        return damage is not None and damage.first_offset <= offset <= damage.last_offset

    def condemn(self, boundary: Boundary) -> None:
        """Reports everything from the first damage up to `boundary` as damaged, in a shifted segment that cannot be
        rebuilt.
        """
        first = self.damage[0] if self.damage else None
        position, offset = (first.position, first.first_offset) if first else (0, self._base_offset)
        self.report(self._not_as_sealed(position, offset, *boundary))
        self.trust(0, boundary.position)

    def _not_as_sealed(self, start: int, first_offset: int, end: int, next_offset: int) -> DamagedRange:
        reason = "its checksum does not match"
        return DamagedRange(name_of(self._file.path), start, end - start, first_offset, next_offset - 1, reason)

    def _check_batches(self, low: int, high: int, size: int, derived: Derived) -> "Walked":
        """Checks each batch that has bytes between `low` and `high`."""
        position, expected = self._anchor(low, derived)
        start, start_offset = position, expected
        batches: dict[int, int] = {}
        checked = ScanRange(
            self._file,
            position,
            size,
            expected,
            gaps=derived.may_have_gaps,
            epochs=self._epochs,
            limit=self.limit,
            anchors=derived.index.positions_after(position),
        )
        for item in walk(checked, boundary=derived.boundary, end_offset=self.limit or derived.next_offset):
            if isinstance(item, FoundBatch):
                position, expected = item.position + item.header.size, item.header.next_offset
                batches[item.position] = item.header.last_offset
            else:
                self.report(item)
                position, expected = item.end, item.last_offset + 1
            if position <= low:
                start, start_offset = position, expected
            if position >= high:
                break
        if position >= size and expected < (self.limit or 0) and not derived.may_have_gaps:
            self.report(missing_records(name_of(self._file.path), expected, self.limit or 0)._replace(position=size))
        self.trust(start, position)
        return Walked(start, start_offset, position, expected, batches)

    def _anchor(self, position: int, derived: Derived) -> tuple[int, int]:
        """Returns the last position before `position` where a batch is known to begin, and its offset. Not `position`
        itself: the batch before it is needed to see whether records are missing there.
        """
        while (entry := derived.index.at_or_before_position(position - 1)) is not None:
            header = header_at(self._file, entry.position)
            if header is not None and header.last_offset == entry.last_offset:
                return entry.position, header.base_offset
            position = entry.position
        return 0, self._base_offset


class Ranges:
    """A set of byte ranges, half-open, merged where they touch, in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Adds everything from `start` to `end`."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def cover(self, start: int, end: int) -> bool:
        """Returns whether everything from `start` to `end` is in the set."""
        number = bisect_right(self._starts, start) - 1
        return start >= end or (number >= 0 and end <= self._ends[number])

    def truncate(self, at: int) -> None:
        """Removes everything at `at` or beyond."""
        number = bisect_left(self._starts, at)
        del self._starts[number:], self._ends[number:]
        if self._ends and self._ends[-1] > at:
            self._ends[-1] = at

    def remove(self, start: int, end: int) -> None:
        """Removes everything from `start` to `end`."""
        for low, high in list(self):
            if low < end and high > start and start < end:
                number = bisect_left(self._starts, low)
                left = [(one, other) for one, other in ((low, start), (end, high)) if one < other]
                self._starts[number : number + 1] = [one for one, _ in left]
                self._ends[number : number + 1] = [other for _, other in left]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)
