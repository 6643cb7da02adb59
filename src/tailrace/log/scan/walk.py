"""Walks a file from batch to batch to its end, and yields sound batches and damaged ranges in order.

What the damage means is decided by the callers: recovery, reads and `log verify`, each in its own way.
"""

from collections.abc import Iterator
from typing import TypeGuard

from tailrace.log.disk.interface import name_of
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.resync import find_next
from tailrace.log.scan.scan import Boundary, FoundBatch, Scan, ScanRange


def walk(
    walked: ScanRange, *, boundary: Boundary | None = None, end_offset: int | None = None
) -> Iterator[FoundBatch | DamagedRange]:
    """Yields every batch of a range, and the ranges of bad bytes between them, in order.

    No damaged range crosses `boundary` (for example the end of a segment's checksums), unless the batches around it
    prove that no batch begins there. `end_offset` is a known lower bound of the file's end offset: damage up to the end
    of the file is reported up to it.
    """
    if boundary is not None and walked.position < boundary.position <= walked.end:
        position, expected = walked.position, walked.expected
        before = walked._replace(end=boundary.position, limit=boundary.offset)
        for item in _walk(before, boundary.offset):
            if _ends_at(item, boundary):
                if _is_disproved(walked, boundary, item):
                    position, expected = item.position, item.first_offset
                    break
                expected = boundary.offset
            elif isinstance(item, FoundBatch):
                expected = item.header.next_offset  # if this is not the offset of the boundary, batches were shifted
            yield item
        else:
            position = boundary.position
        walked = walked.after(position, expected)
    yield from _walk(walked, end_offset)


def _ends_at(item: FoundBatch | DamagedRange, boundary: Boundary) -> TypeGuard[DamagedRange]:
    return isinstance(item, DamagedRange) and item.end == boundary.position


def _is_disproved(walked: ScanRange, boundary: Boundary, bad: DamagedRange) -> bool:
    """Returns whether the bytes were shifted, so that `boundary` is wrong: a batch spans it, or one that begins there
    or behind it has an offset that belongs before it. `bad` is the damage that would end there.
    """
    suspect = walked.after(bad.position, bad.first_offset)
    start: Boundary | None = Boundary(bad.position, bad.first_offset)
    if not any(True for _ in Scan(suspect)):
        start = find_next(suspect)
    if start is None:
        return False
    if start.position >= boundary.position:
        return start.offset < boundary.offset
    for found in Scan(walked.after(*start)):
        if found.position + found.header.size > boundary.position:
            return found.position < boundary.position or found.header.base_offset < boundary.offset
    return False


def _walk(walked: ScanRange, end_offset: int | None) -> Iterator[FoundBatch | DamagedRange]:
    name = name_of(walked.file.path)
    while True:
        scan = Scan(walked)
        yield from scan
        if scan.trouble is None:
            return
        bad, first, reason = scan.position, scan.expected, scan.trouble
        follower = find_next(walked.after(bad, first))
        if follower is None:
            # At the limit the offsets of the file are complete: later bytes are surplus.
            least = first - 1 if first == walked.limit else first
            yield DamagedRange(name, bad, walked.end - bad, first, max(least, (end_offset or 0) - 1), reason)
            return
        yield DamagedRange(name, bad, follower.position - bad, first, follower.offset - 1, reason)
        walked = walked.after(*follower)
