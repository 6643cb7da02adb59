"""Finds records by timestamp in a view of a log. Waits for a disk."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tailrace.log.segment.derived import Derived
from tailrace.log.segment.segment import Segment
from tailrace.log.segment.slices import FileSlice
from tailrace.log.view import View
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records, first_record_at_or_after

_READ_BYTES = 1 << 20  # read at a time when searching for a record


class FoundTime(NamedTuple):
    offset: int
    timestamp: int


class SearchableLog(Protocol):
    """What a search uses of a log."""

    @property
    def view(self) -> View: ...

    def read(self, offset: int, max_bytes: int) -> FileSlice | None: ...

    def segments_from(self, view: View, offset: int) -> Iterator[tuple[Segment, int]]: ...


class TimeSearch:
    def __init__(self, log: SearchableLog, view: View) -> None:
        self._log = log
        self._view = view

    def first_from(self, timestamp: int) -> FoundTime | None:
        """Returns the first record, by offset, with this timestamp or a later one; None if there is none."""
        first = self._view.first_readable
        for segment, _ in self._log.segments_from(self._view, first):
            derived = segment.derived()
            if derived.max_timestamp < timestamp and not derived.is_partial:
                continue
            entry = derived.time_index.before(timestamp)
            offset = max(first, entry.last_offset if entry else segment.base_offset)
            found = self._first_between(offset, derived.next_offset, timestamp)
            if found is not None:
                return found
        return None

    def _first_between(self, offset: int, end: int, timestamp: int) -> FoundTime | None:
        for data, position, header in self._batches_from(offset, end):
            if header.max_timestamp >= timestamp:
                found = self._first_in_batch(data, position, header, timestamp)
                if found is not None:
                    return found
        return None

    def _first_in_batch(self, data: bytes, position: int, header: BatchHeader, timestamp: int) -> FoundTime | None:
        start = self._log.view.start
        try:
            record = first_record_at_or_after(data, position, timestamp, start_offset=start)
        except CorruptBatch:  # a producer may send anything: a search by time then begins with this batch
            return FoundTime(max(start, header.base_offset), header.max_timestamp)
        return FoundTime(record.offset, record.timestamp) if record is not None else None

    def _batches_from(self, offset: int, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
        """Yields every batch with records from `offset` to before `end` that readers may see, with the bytes that it
        lies in.
        """
        while offset < min(end, self._log.view.high_watermark):
            records = self._log.read(offset, _READ_BYTES)
            if records is None:
                return
            with records:
                data, offset = records.read(), records.next_offset
            for position, header in batch.split(data):
                yield data, position, header

    def newest(self) -> FoundTime | None:
        """Returns the first record with the largest timestamp that readers may see; None if the log is empty."""
        best: FoundTime | None = None
        for segment, _ in self._log.segments_from(self._view, self._view.first_readable):
            derived = segment.derived()
            if best is None or derived.max_timestamp > best.timestamp:
                best = _newer(best, self._newest_of_segment(segment, derived))
        return best

    def _newest_of_segment(self, segment: Segment, derived: Derived) -> FoundTime | None:
        """Searches one segment. Its index has the batch; if that is not flushed yet, or its record was deleted, reads
        all batches.
        """
        known = derived.max_timestamp_offset
        if self._view.start <= known < self._view.high_watermark:
            newest = self._newest_between(known, known + 1)
            if newest is not None and newest.timestamp == derived.max_timestamp:
                return newest
        return self._newest_between(max(self._view.first_readable, segment.base_offset), derived.next_offset)

    def _newest_between(self, start: int, end: int) -> FoundTime | None:
        best: FoundTime | None = None
        for data, position, header in self._batches_from(start, end):
            if best is None or header.max_timestamp > best.timestamp:
                best = _newer(best, self._newest_in_batch(data, position, header))
        return best

    def _newest_in_batch(self, data: bytes, position: int, header: BatchHeader) -> FoundTime | None:
        start = self._log.view.start
        try:
            readable = [record for record in decode_records(data, position) if record.offset >= start]
        except CorruptBatch:
            return FoundTime(max(start, header.base_offset), header.max_timestamp)
        newest = max(readable, key=lambda record: record.timestamp, default=None)
        return FoundTime(newest.offset, newest.timestamp) if newest is not None else None


def _newer(one: FoundTime | None, other: FoundTime | None) -> FoundTime | None:
    """Returns the one with the larger timestamp; the first if they are equal."""
    if one is None or other is None:
        return one or other
    return other if other.timestamp > one.timestamp else one
