"""Plans a pass: which part of a log may be compacted, and how much of it is new. Pure: nothing is read.

Only whole sealed segments take part, from the first one on, and only segments that are on disk with their indexes. The
part ends before the first undecided transaction, before damage, and at the active segment.
"""

from typing import NamedTuple

from tailrace.log.segment.segment import Segment
from tailrace.log.view import View


class Cleanable(NamedTuple):
    segments: tuple[Segment, ...]
    end: int  # the offset behind them
    first_dirty: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        """The share of new bytes, as Kafka computes it."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def dirty_segments(self) -> tuple[Segment, ...]:
        ends = [segment.base_offset for segment in self.segments[1:]] + [self.end]
        return tuple(segment for segment, end in zip(self.segments, ends, strict=True) if end > self.first_dirty)

    def before(self, count: int) -> "Cleanable":
        """Returns this plan without the segments from number `count` on."""
        if count == len(self.segments):
            return self
        end = self.segments[count].base_offset
        return _cleanable(self.segments[:count], end, self.first_dirty)


def cleanable(view: View, compacted_to: int, recovery_point: int) -> Cleanable:
    """Plans a pass over a log that is compacted up to `compacted_to`, and saved on disk up to `recovery_point`."""
    segments = view.segments
    limit = min(view.last_stable, recovery_point, view.visible.segment_base)
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= limit:
        if not segments[count].is_saved or segments[count].checks.damage:
            break
        count += 1
    return _cleanable(segments[:count], segments[count].base_offset, compacted_to)


def _cleanable(segments: tuple[Segment, ...], end: int, compacted_to: int) -> Cleanable:
    clean = dirty = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if following <= compacted_to:
            clean += segment.size
        else:
            dirty += segment.size
    return Cleanable(segments, end, compacted_to, clean, dirty)
