"""Offsets as distinct types, and the bounds of a log that keep them in order.

Every log has three of them. All are *next* offsets, so exclusive as an upper bound:

    start           the first offset that can be read; records below it were deleted
    high watermark  everything below it is on disk: readers may see it, and it survives a power cut
    end             the offset that the next record gets

`start ≤ high watermark ≤ end` holds at all times: the four methods of `OffsetBounds` are the only way to change them.
"""

from typing import NewType

StartOffset = NewType("StartOffset", int)
HighWatermark = NewType("HighWatermark", int)
EndOffset = NewType("EndOffset", int)


class OffsetBounds:
    __slots__ = ("_end", "_high_watermark", "_start")

    _start: StartOffset
    _high_watermark: HighWatermark
    _end: EndOffset

    def __init__(self, start: int, high_watermark: int, end: int) -> None:
        self._set(start, high_watermark, end)

    @property
    def start(self) -> StartOffset:
        return self._start

    @property
    def high_watermark(self) -> HighWatermark:
        return self._high_watermark

    @property
    def end(self) -> EndOffset:
        return self._end

    def appended(self, end: int) -> None:
        """Moves the end after an append. The new records are not flushed yet."""
        assert end >= self._end, f"an append cannot move the end back from {self._end} to {end}"
        self._end = EndOffset(end)

    def flushed(self, up_to: int) -> None:
        """Raises the high watermark to `up_to`. An earlier flush that is reported late changes nothing."""
        self._set(self._start, max(self._high_watermark, up_to), self._end)

    def deleted(self, below: int) -> None:
        """Raises the start offset to `below`."""
        self._set(max(self._start, below), self._high_watermark, self._end)

    def truncated(self, end: int) -> None:
        """Moves the end and the high watermark back to `end`. What remains is on disk."""
        assert end <= self._end, f"a truncation cannot move the end from {self._end} to {end}"
        self._set(self._start, end, end)

    def _set(self, start: int, high_watermark: int, end: int) -> None:
        assert 0 <= start <= high_watermark <= end, f"offsets out of order: {start} ≤ {high_watermark} ≤ {end}"
        self._start = StartOffset(start)
        self._high_watermark = HighWatermark(high_watermark)
        self._end = EndOffset(end)

    def __repr__(self) -> str:
        return f"OffsetBounds(start={self._start}, high_watermark={self._high_watermark}, end={self._end})"
