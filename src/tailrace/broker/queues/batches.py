"""The batches of a slice of a log, found by their headers alone: nothing is decoded, and little is read."""

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.log.segment.segment import WouldWait
from tailrace.log.segment.slices import HEADERS_BYTES, Slice
from tailrace.records.batch import CONTROL, HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, TRANSACTIONAL
from tailrace.records.errors import CorruptBatch


class FoundBatch(NamedTuple):
    """A batch: its offsets, both inclusive, and where its bytes are in the slice."""

    first: int
    last: int
    begin: int
    end: int
    attributes: int
    producer_id: int
    max_timestamp: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_of_transaction(self) -> bool:
        """Whether it has records of a transaction, and is no marker."""
        return self.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL


def batches_of(records: Slice, *, wait: bool) -> Iterator[FoundBatch]:
    """Yields the batches of a slice. With `wait=False`, raises WouldWait instead of waiting for a disk."""
    position, length = 0, records.length
    window_begin, window = 0, b""
    while position < length:
        at = position - window_begin
        if at + HEADER_SIZE > len(window):
            window_begin, at = position, 0
            window = _window(records, position, min(HEADERS_BYTES, length - position), wait)
        if len(window) < HEADER_SIZE:
            raise CorruptBatch(f"{length - position} bytes are no batch")
        header = HEADER.unpack_from(window, at)
        base_offset, size, attributes, last_delta, max_timestamp, producer_id = (
            header[0], header[1], header[5], header[6], header[8], header[9],
        )  # fmt: skip
        end = position + LENGTH_END + size
        if size < LENGTH_MIN or end > length:
            raise CorruptBatch(f"a batch of {size} bytes among the last {length - position} of a slice")
        yield FoundBatch(base_offset, base_offset + last_delta, position, end, attributes, producer_id, max_timestamp)
        position = end


def _window(records: Slice, start: int, size: int, wait: bool) -> bytes:
    if wait:
        return records.read(start, size)
    window = records.read_cached(start, size)
    if window is None:
        raise WouldWait
    return bytes(window)
