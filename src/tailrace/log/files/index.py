"""The three indexes of a segment, in Kafka's formats. All can be rebuilt from the segment when lost or damaged.

    .index      8 bytes an entry: last offset of a batch (relative to the segment's base, uint32), its position (uint32)
    .timeindex 12 bytes an entry: largest timestamp so far (int64), last offset of the batch that has it (relative,
    uint32)
    .txnindex  34 bytes an entry: version (int16, 0), producer id, first offset, last offset (of the abort marker), last
    stable offset, of an aborted transaction

The first two are sparse: an entry is made for the first batch that begins more than `index.interval.bytes` after the
last one indexed. Entries are kept in memory just as they stand in the file, so that loading and saving copy bytes and a
lookup unpacks what it compares.

A reader that wants only committed records gets the aborted transactions with its bytes, and leaves out what they name.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_POSITION = struct.Struct(">4xI")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_TRANSACTION_FIRST_OFFSET = struct.Struct(">10xq16x")
_TRANSACTION_LAST_OFFSET = struct.Struct(">18xq8x")
_TRANSACTION_VERSION = 0
RELATIVE_OFFSET_MAX = 0x7FFFFFFF  # Kafka's entries are signed: a segment rolls before it gets here
POSITION_MAX = 0x7FFFFFFF


class IndexEntry(NamedTuple):
    last_offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    last_offset: int


class OffsetIndex:
    """The offset index: where the search for an offset begins."""

    ENTRY_SIZE = _OFFSET_ENTRY.size

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        self._base_offset = base_offset
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY_SIZE

    def append(self, last_offset: int, position: int) -> None:
        self.data += _OFFSET_ENTRY.pack(last_offset - self._base_offset, position)

    def entry(self, number: int) -> IndexEntry:
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, number * self.ENTRY_SIZE)
        return IndexEntry(self._base_offset + relative, position)

    def last(self) -> IndexEntry | None:
        return self.entry(len(self) - 1) if self.data else None

    def copy(self) -> "OffsetIndex":
        return OffsetIndex(self._base_offset, self.data)

    def at_or_before(self, offset: int) -> IndexEntry | None:
        """Returns the last entry whose batch ends at or before `offset`: the search for it begins there."""
        if (last := self.last()) is not None and last.last_offset <= offset:
            return last  # most readers are at the end of the log, and need no search
        number = bisect_right(range(len(self)), offset, key=lambda n: self.entry(n).last_offset)
        return self.entry(number - 1) if number else None

    def at_or_before_position(self, position: int) -> IndexEntry | None:
        number = self._number_behind(position)
        return self.entry(number - 1) if number else None

    def _number_behind(self, position: int) -> int:
        """Returns the number of the first entry that points behind `position`. Called for every Fetch."""
        data, size = self.data, self.ENTRY_SIZE
        return bisect_right(range(len(self)), position, key=lambda n: _POSITION.unpack_from(data, n * size)[0])

    def positions_after(self, position: int) -> list[int]:
        """Returns the positions of later batches: anchors for a search behind bad bytes at `position`."""
        number = self._number_behind(position)
        return [self.entry(later).position for later in range(number, len(self))]

    def entries_between(self, start: int, end: int) -> list[IndexEntry]:
        """Returns the entries that point to `start` or later and before `end`."""
        return [self.entry(number) for number in range(self._number_behind(start - 1), self._number_behind(end - 1))]

    def thinned(self, start: int, end: int, most: int) -> bytes:
        """Returns at most `most` of the entries that point to `start` or later and before `end`, evenly spread."""
        first, behind = self._number_behind(start - 1), self._number_behind(end - 1)
        entries = bytes(self.data[first * self.ENTRY_SIZE : behind * self.ENTRY_SIZE])
        every = -(-(behind - first) // most) or 1
        return memoryview(entries).cast("Q")[::every].tobytes()

    def keep_before(self, position: int) -> None:
        """Removes the entries that point to `position` or beyond."""
        number = self._number_behind(position - 1)
        del self.data[number * self.ENTRY_SIZE :]

    def is_sound(self, log_size: int) -> bool:
        """Returns whether these bytes can be an index of a log of that size: whole entries, ascending, inside
        the file.
        """
        if len(self.data) % self.ENTRY_SIZE:
            return False
        last_offset, last_position = -1, -1
        for offset, position in _OFFSET_ENTRY.iter_unpack(self.data):
            if offset <= last_offset or position <= last_position:
                return False
            last_offset, last_position = offset, position
        return last_position < log_size


def positions_in(entries: bytes) -> list[int]:
    """Returns the positions in the entries of an offset index."""
    return [position for _, position in _OFFSET_ENTRY.iter_unpack(entries)]


class TimeIndex:
    """The time index: the largest timestamp up to an offset. No record before an entry is newer than its timestamp."""

    ENTRY_SIZE = _TIME_ENTRY.size

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        self._base_offset = base_offset
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY_SIZE

    def append(self, timestamp: int, last_offset: int) -> None:
        """Adds an entry, unless it adds no information: timestamps in the index only grow."""
        data = self.data
        if not data or timestamp > _TIME_ENTRY.unpack_from(data, len(data) - self.ENTRY_SIZE)[0]:
            data += _TIME_ENTRY.pack(timestamp, last_offset - self._base_offset)

    def entry(self, number: int) -> TimeEntry:
        timestamp, relative = _TIME_ENTRY.unpack_from(self.data, number * self.ENTRY_SIZE)
        return TimeEntry(timestamp, self._base_offset + relative)

    def last(self) -> TimeEntry | None:
        return self.entry(len(self) - 1) if self.data else None

    def copy(self) -> "TimeIndex":
        return TimeIndex(self._base_offset, self.data)

    def before(self, timestamp: int) -> TimeEntry | None:
        """Returns the last entry older than `timestamp`: no record up to its offset is as new as that."""
        number = bisect_right(range(len(self)), timestamp - 1, key=lambda n: self.entry(n).timestamp)
        return self.entry(number - 1) if number else None

    def keep_before(self, offset: int) -> None:
        """Removes the entries of `offset` and later ones."""
        number = bisect_right(range(len(self)), offset - 1, key=lambda n: self.entry(n).last_offset)
        del self.data[number * self.ENTRY_SIZE :]

    def is_sound(self) -> bool:
        if len(self.data) % self.ENTRY_SIZE:
            return False
        last: tuple[int, int] | None = None
        for timestamp, offset in _TIME_ENTRY.iter_unpack(self.data):
            if last is not None and (timestamp <= last[0] or offset <= last[1]):
                return False
            last = timestamp, offset
        return True


def least_size_of_full_index(limit: int, interval_bytes: int) -> int:
    """Returns the size below which no log has a full index (`Segment.has_full_index`), as it has too few entries."""
    entries = max(0, limit - 2 * TimeIndex.ENTRY_SIZE) // TimeIndex.ENTRY_SIZE
    return entries * interval_bytes


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedInRange(NamedTuple):
    """The aborted transactions of a segment with records in a range. No later segment has one if `is_complete`."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The transactions that were aborted in a segment, in the order of their abort markers.

    Last offsets grow from entry to entry, and last stable offsets never fall. While one transaction stays open,
    thousands of others may be aborted with the same last stable offset: a lookup passes over `BLOCK` entries at a time
    where all of them began behind the range. Readers in other threads unpack one entry at a time, and hold no view of
    the data between two: the owner may append meanwhile.
    """

    ENTRY_SIZE = _TRANSACTION_ENTRY.size
    BLOCK = 256

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self._least = self._least_first_offsets()  # of each block

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY_SIZE

    def copy(self) -> "TransactionIndex":
        copied = type(self)()
        copied.data, copied._least = self.data.copy(), self._least.copy()
        return copied

    def append(self, aborted: AbortedTransaction) -> None:
        first = aborted.first_offset
        if len(self) % self.BLOCK:
            self._least[-1] = min(self._least[-1], first)
        else:
            self._least.append(first)
        self.data += _TRANSACTION_ENTRY.pack(_TRANSACTION_VERSION, *aborted)  # last: a reader that sees it has the rest

    def entry(self, number: int) -> AbortedTransaction:
        _, *fields = _TRANSACTION_ENTRY.unpack_from(self.data, number * self.ENTRY_SIZE)
        return AbortedTransaction(*fields)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self.entry, range(len(self)))

    def overlapping(self, first: int, end: int) -> AbortedInRange:
        """Returns the aborted transactions with records at `first` or later and before `end`."""
        found: list[AbortedTransaction] = []
        number, count = self._number_ending_at_or_after(first), len(self)
        while number < count:
            block = number // self.BLOCK
            block_end = min((block + 1) * self.BLOCK, count)
            if self._least[block] >= end:
                number = block_end - 1  # the last of the block says whether to go on
            while number < block_end:
                aborted = self.entry(number)
                if aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:  # later ones began at this offset or behind it
                    return AbortedInRange(found, True)
                number += 1
        return AbortedInRange(found, False)

    def _number_ending_at_or_after(self, offset: int) -> int:
        """Returns the number of the first entry whose abort marker is at `offset` or later."""
        data, size = self.data, self.ENTRY_SIZE
        return bisect_left(
            range(len(self)), offset, key=lambda n: _TRANSACTION_LAST_OFFSET.unpack_from(data, n * size)[0]
        )

    def keep_before(self, offset: int) -> None:
        """Removes the entries whose abort marker is at `offset` or later."""
        del self.data[self._number_ending_at_or_after(offset) * self.ENTRY_SIZE :]
        self._least = self._least_first_offsets()

    def _least_first_offsets(self) -> list[int]:
        starts = range(0, len(self) * self.ENTRY_SIZE, self.ENTRY_SIZE)
        offsets = [_TRANSACTION_FIRST_OFFSET.unpack_from(self.data, start)[0] for start in starts]
        return [min(offsets[start : start + self.BLOCK]) for start in range(0, len(offsets), self.BLOCK)]

    def is_sound(self) -> bool:
        if len(self.data) % self.ENTRY_SIZE:
            return False
        return all(
            version == _TRANSACTION_VERSION and first <= last
            for version, _, first, last, _ in _TRANSACTION_ENTRY.iter_unpack(self.data)
        )
