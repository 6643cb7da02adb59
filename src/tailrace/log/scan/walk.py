"""Walks a file from batch to batch to its end, and yields sound batches and damaged ranges in order.

What the bad bytes mean is for others to say: recovery, reads and `log verify` do, each in its own way.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

from tailrace.log.disk.interface import File, name_of
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.resync import find_next
from tailrace.log.scan.scan import FoundBatch, Scan


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

    No range reaches over `boundary`, unless the batches around it prove that none begins there. `end_offset` is the
    offset at which the file is known to end at the least: damage that lasts to the end is named by it. `limit`, if
    known, is one that no batch of the file reaches beyond.
    """
    rules = _Rules(gaps, epochs, anchors)
    if boundary is not None and position < boundary.position <= end:
        for item in _walk(file, position, boundary.position, expected, rules, boundary.offset, boundary.offset):
            if _ends_at(item, boundary):
                if _is_disproved(file, boundary, item, end, rules, limit):
                    position, expected = item.position, item.first_offset
                    break
                expected = boundary.offset
            elif isinstance(item, FoundBatch):
                expected = item.header.next_offset  # if not the offset of the boundary, batches were shifted
            yield item
        else:
            position = boundary.position
    yield from _walk(file, position, end, expected, rules, end_offset, limit)


class _Rules(NamedTuple):
    """What is the same for all of a walk."""

    gaps: bool
    epochs: LeaderEpochs | None
    anchors: Sequence[int]

    def scan(self, file: File, position: int, end: int, expected: int, limit: int | None) -> Scan:
        return Scan(file, position, end, expected, gaps=self.gaps, epochs=self.epochs, limit=limit)

    def find_next(self, file: File, position: int, end: int, expected: int, limit: int | None) -> Boundary | None:
        gaps, epochs, anchors = self
        found = find_next(file, position, end, expected, gaps=gaps, epochs=epochs, anchors=anchors, limit=limit)
        return None if found is None else Boundary(*found)


def _ends_at(item: FoundBatch | DamagedRange, boundary: Boundary) -> TypeGuard[DamagedRange]:
    return isinstance(item, DamagedRange) and item.end == boundary.position


def _is_disproved(
    file: File, boundary: Boundary, bad: DamagedRange, end: int, rules: _Rules, limit: int | None
) -> bool:
    """Whether the bytes were shifted, so that `boundary` says nothing: a batch lies across it, or one that begins there
    or behind it has an offset that belongs before it. `bad` is the damage that would end there.
    """
    start: Boundary | None = Boundary(bad.position, bad.first_offset)
    if not any(True for _ in rules.scan(file, bad.position, end, bad.first_offset, limit)):
        start = rules.find_next(file, bad.position, end, bad.first_offset, limit)
    if start is None:
        return False
    if start.position >= boundary.position:
        return start.offset < boundary.offset
    for found in rules.scan(file, start.position, end, start.offset, limit):
        if found.position + found.header.size > boundary.position:
            return found.position < boundary.position or found.header.base_offset < boundary.offset
    return False


def _walk(
    file: File, position: int, end: int, expected: int, rules: _Rules, end_offset: int | None, limit: int | None
) -> Iterator[FoundBatch | DamagedRange]:
    name = name_of(file.path)
    while True:
        scan = rules.scan(file, position, end, expected, limit)
        yield from scan
        if scan.trouble is None:
            return
        bad, first, reason = scan.position, scan.expected, scan.trouble
        follower = rules.find_next(file, bad, end, first, limit)
        if follower is None:
            # At the limit the offsets of the file are complete: whatever stands behind is surplus.
            least = first - 1 if first == limit else first
            yield DamagedRange(name, bad, end - bad, first, max(least, (end_offset or 0) - 1), reason)
            return
        position, expected = follower
        yield DamagedRange(name, bad, position - bad, first, expected - 1, reason)
