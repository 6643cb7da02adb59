"""A file from batch to batch, to its end: what is sound and what is not, in order.

What the bad bytes mean is for others to say: recovery, reads and `log verify` do, each in its own way.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.log.damage import DamagedRange
from tailrace.log.epochs import LeaderEpochs
from tailrace.log.files import File, name_of
from tailrace.log.scan import FoundBatch, Scan
from tailrace.log.search import find_next


class Boundary(NamedTuple):
    """A place where a batch is known to begin, and its offset: where the sums of a segment end, for one."""

    position: int
    offset: int


def walk(
    file: File,
    position: int,
    end: int,
    expected: int,
    *,
    gaps: bool = False,
    epochs: LeaderEpochs | None = None,
    anchors: Sequence[int] = (),
    boundary: Boundary | None = None,
    end_offset: int | None = None,
    limit: int | None = None,
) -> Iterator[FoundBatch | DamagedRange]:
    """Every batch from `position` to `end` and, between them, every range of bytes that is none, in order.

    No range reaches over `boundary`. `end_offset` is the offset at which the file is known to end at the least: damage
    that lasts to the end is named by it. `limit`, if known, is one that no batch of the file reaches beyond.
    """
    if boundary is not None and position < boundary.position <= end:
        before = boundary.position, expected, gaps, epochs, anchors, boundary.offset, boundary.offset
        yield from _walk(file, position, *before)
        position, expected = boundary
    yield from _walk(file, position, end, expected, gaps, epochs, anchors, end_offset, limit)


def _walk(
    file: File,
    position: int,
    end: int,
    expected: int,
    gaps: bool,
    epochs: LeaderEpochs | None,
    anchors: Sequence[int],
    end_offset: int | None,
    limit: int | None,
) -> Iterator[FoundBatch | DamagedRange]:
    name = name_of(file.path)
    while True:
        scan = Scan(file, position, end, expected, gaps=gaps, epochs=epochs, limit=limit)
        yield from scan
        if scan.trouble is None:
            return
        bad, first, reason = scan.position, scan.expected, scan.trouble
        follower = find_next(file, bad, end, first, gaps=gaps, epochs=epochs, anchors=anchors, limit=limit)
        if follower is None:
            last = max(first, (end_offset or 0) - 1)
            yield DamagedRange(name, bad, end - bad, first, last, reason)
            return
        position, expected = follower
        yield DamagedRange(name, bad, position - bad, first, expected - 1, reason)
