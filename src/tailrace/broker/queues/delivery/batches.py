"""The batches of a slice of a log, found by their headers alone: nothing is decoded, and little is read."""

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.log.segment.segment import WouldWait
from tailrace.log.segment.slices import HEADERS_BYTES, Slice
from tailrace.records.batch import HEADER_SIZE, BatchHeader, read_header
from tailrace.records.errors import CorruptBatch


class FoundBatch(NamedTuple):
    """A batch, and where its bytes are in the slice."""

    header: BatchHeader
    begin: int
    end: int

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset

    @property
    def has_records(self) -> bool:
        """Whether there may be records for members in it. Compaction leaves batches without any."""
        return self.header.record_count > 0 and not self.header.is_control


def batches_of(records: Slice, *, wait: bool) -> Iterator[FoundBatch]:
    """Yields the batches of a slice. With `wait=False`, raises WouldWait instead of waiting for a disk; and in any case
    CorruptBatch for bytes that are none.
    """
    position, length = 0, records.length
    window_begin, window = 0, b""
    while position < length:
        at = position - window_begin
        if at + HEADER_SIZE > len(window):
            window_begin, at = position, 0
            window = _window(records, position, min(HEADERS_BYTES, length - position), wait)
        header = read_header(window, at)
        end = position + header.size
        if not HEADER_SIZE <= header.size <= length - position:
            raise CorruptBatch(f"a batch of {header.size} bytes among the last {length - position} of a slice")
        yield FoundBatch(header, position, end)
        position = end


def _window(records: Slice, start: int, size: int, wait: bool) -> bytes:
    if wait:
        return records.read(start, size)
    window = records.read_cached(start, size)
    if window is None:
        raise WouldWait
    return bytes(window)
