"""What readers may see of a log at one moment, and where they stopped in it."""

from typing import NamedTuple

from tailrace.log.layout.offsets import HighWatermark, StartOffset
from tailrace.log.segment.segment import Segment

REMEMBERED_MAX = 16  # remembered positions per log: 3 KB, and there may be many logs


class Position(NamedTuple):
    """A position in the log where a batch ends."""

    segment_base: int
    position: int


class ReadPosition(NamedTuple):
    """The position of a batch, or of the next one to be appended."""

    segment: Segment
    position: int


class View(NamedTuple):
    """What readers may see of a log, at one moment. The owner replaces it as a whole; a reader takes it once."""

    start: StartOffset
    high_watermark: HighWatermark
    last_stable: int
    segments: tuple[Segment, ...]
    visible: Position
    sealed_bytes: int  # the size of all segments but the last

    def limit_of(self, segment: Segment) -> int:
        """Returns the position up to which readers may read."""
        return self.visible.position if segment.base_offset == self.visible.segment_base else segment.size

    @property
    def first_readable(self) -> int:
        """The start offset, or the base offset of the first segment that is left, if that is larger."""
        return max(self.start, self.segments[0].base_offset)


class StoppedReaders:
    """Remembers where readers of these segments stopped, by the offset that they go on with, so that the next read
    needs no search. Used by any thread.
    """

    __slots__ = ("_positions", "segments")

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._positions: dict[int, ReadPosition] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def find(self, segments: tuple[Segment, ...], offset: int) -> ReadPosition | None:
        """Returns the position of `offset` if a reader of these segments stopped there."""
        return self._positions.get(offset) if segments is self.segments else None

    def remember(self, segments: tuple[Segment, ...], offset: int, position: ReadPosition) -> None:
        if segments is self.segments:  # otherwise other segments have replaced them meanwhile
            if len(self._positions) >= REMEMBERED_MAX:
                self._positions.clear()  # readers find their positions again
            self._positions[offset] = position
