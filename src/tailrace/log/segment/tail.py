"""Distinguishes a write that a crash has lost from damaged bytes, at the end of a log.

Recovery, `log verify` and readers all use these functions, so that they never disagree. `log/recovery/recovery`
explains the rules.
"""

from collections.abc import Sequence

from tailrace.log.files.checksums import Gaps
from tailrace.log.files.recorded_gaps import RecordedGap, has_gap
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import Scan, ScanRange, header_at
from tailrace.log.segment.derived import Derived
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import CRC_START, HEADER_SIZE
from tailrace.records.checksum import crc32c

PAGE_BYTES = 4096  # the unit of disk writes: a lost write leaves a page of zeros
PIECE_BYTES = 1 << 20


def due_end(derived: Derived, following: int, gaps: Sequence[RecordedGap]) -> int:
    """Returns the least end offset of a segment whose successor begins at `following`: that offset, unless a repair, or
    another program's compaction, may have left a gap between the two (ours keeps the end of a segment). In that case it
    is the end when its checksums were written.
    """
    is_dense = derived.gaps is Gaps.NONE
    if is_dense or (derived.gaps is Gaps.COMPACTED and not has_gap(gaps, derived.next_offset, following)):
        return following
    return min(derived.checksummed_end, following)


def may_be_unflushed(offset: int, segment: Segment, unflushed_from: float) -> bool:
    """Returns whether what is missing from `offset` on may be a lost write. Everything before the recovery point was
    flushed, and so was everything that the segment's checksums cover.
    """
    if offset < unflushed_from:
        return False
    checksums = segment.derived_files.read_checksums()
    return checksums is None or offset >= checksums.next_offset


def ends_the_log(damage: DamagedRange, segment: Segment, follower: Segment | None, unflushed_from: float) -> bool:
    """Returns whether the log ends where these bad bytes of `segment` begin. `follower` is the next segment, if any."""
    if damage.length == 0 or not may_be_unflushed(damage.first_offset, segment, unflushed_from):
        return False
    if damage.end < segment.size:
        return _has_hole(segment, damage)
    if follower is None or not _begins_with_a_batch(follower):
        return True
    return _has_hole(segment, damage) or _reaches_beyond_the_file(segment, damage)


def _has_hole(segment: Segment, damage: DamagedRange) -> bool:
    """Returns whether a page among the bad bytes, or the header at their start, is all zeros: a write that never
    reached the disk.
    """
    head = segment.log.read_at(damage.position, min(HEADER_SIZE, damage.length))
    if not any(head):
        return True
    first_page = -(-damage.position // PAGE_BYTES) * PAGE_BYTES
    pages = (segment.log.read_at(page, PAGE_BYTES) for page in range(first_page, damage.end, PAGE_BYTES))
    return any(len(page) >= HEADER_SIZE and not any(page) for page in pages)


def _reaches_beyond_the_file(segment: Segment, damage: DamagedRange) -> bool:
    """Returns whether the bad batch extends beyond the end of the file, rather than having a wrong length."""
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
    return any(True for _ in Scan(ScanRange(segment.log, 0, segment.size, segment.base_offset)))
