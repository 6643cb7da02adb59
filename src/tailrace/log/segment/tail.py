"""Tells a write that a crash has lost from bytes that went bad, at the end of a log.

Recovery, `log verify` and readers ask here, so that they never disagree. recovery.py says why the answers are right.
"""

from collections.abc import Sequence

from tailrace.log.files.checksums import Gaps
from tailrace.log.files.recorded_gaps import RecordedGap, has_gap
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import Scan, header_at
from tailrace.log.segment.derived import Derived
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import CRC_START, HEADER_SIZE
from tailrace.records.checksum import crc32c

PAGE_BYTES = 4096  # what a disk is given at a time: a write that was lost leaves a page of zeros
PIECE_BYTES = 1 << 20


def due_end(derived: Derived, following: int, gaps: Sequence[RecordedGap]) -> int:
    """The offset that a segment has to reach at the least, if the next one begins at `following`: that one, unless a
    repair, or another program's compaction, may have left a gap between the two. (Ours keeps where a segment ends.)
    Else where it ended when it was summed.
    """
    is_dense = derived.gaps is Gaps.NONE
    if is_dense or (derived.gaps is Gaps.COMPACTED and not has_gap(gaps, derived.next_offset, following)):
        return following
    return min(derived.summed_to, following)


def may_be_unflushed(offset: int, segment: Segment, cut_point: float) -> bool:
    """Whether what is missing from `offset` on may be a write that was lost. What lies before the recovery point was
    flushed, and so was what the sums of a segment speak of.
    """
    if offset < cut_point:
        return False
    sums = segment.derived_files.read_sums()
    return sums is None or offset >= sums.next_offset


def ends_the_log(damage: DamagedRange, segment: Segment, follower: Segment | None, cut_point: float) -> bool:
    """Whether the log ends where these bad bytes of `segment` begin. `follower` is the segment behind it, if any."""
    if damage.length == 0 or not may_be_unflushed(damage.first_offset, segment, cut_point):
        return False
    if damage.end < segment.size:
        return _has_hole(segment, damage)
    if follower is None or not _begins_with_a_batch(follower):
        return True
    return _has_hole(segment, damage) or _is_cut_short(segment, damage)


def _has_hole(segment: Segment, damage: DamagedRange) -> bool:
    """Whether a page among the bad bytes, or the header they begin with, is all zeros: a write that never reached
    the disk.
    """
    head = segment.log.read_at(damage.position, min(HEADER_SIZE, damage.length))
    if not any(head):
        return True
    first_page = -(-damage.position // PAGE_BYTES) * PAGE_BYTES
    pages = (segment.log.read_at(page, PAGE_BYTES) for page in range(first_page, damage.end, PAGE_BYTES))
    return any(len(page) >= HEADER_SIZE and not any(page) for page in pages)


def _is_cut_short(segment: Segment, damage: DamagedRange) -> bool:
    """Whether the bad batch goes on behind the end of the file, rather than having a bad length and all of its
    bytes.
    """
    header = header_at(segment.log, damage.position)
    if header is None:
        return True
    return header.size > damage.length and _crc_of(segment, damage.position + CRC_START, damage.end) != header.crc


def _crc_of(segment: Segment, start: int, end: int) -> int:
    crc = crc32c(b"")
    for position in range(start, end, PIECE_BYTES):
        crc = crc32c(segment.log.read_at(position, min(PIECE_BYTES, end - position)), crc)
    return crc


def _begins_with_a_batch(segment: Segment) -> bool:
    return any(True for _ in Scan(segment.log, 0, segment.size, segment.base_offset))
