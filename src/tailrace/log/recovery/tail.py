"""Tells a write that a crash has lost from bytes that went bad, at the end of a log.

Recovery and `log verify` ask here, so that they never disagree. Both ask only about bad bytes behind the recovery
point, which no checkpoint vouches for. recovery.py says why the answers are right.
"""

from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import Scan, header_at
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import CRC_START, HEADER_SIZE
from tailrace.records.checksum import crc32c

PAGE_BYTES = 4096  # what a disk is given at a time: a write that was lost leaves a page of zeros
PIECE_BYTES = 1 << 20


def ends_the_log(damage: DamagedRange, segment: Segment, follower: Segment | None) -> bool:
    """Whether the log ends where these bad bytes of `segment` begin. `follower` is the segment behind it, if any."""
    if damage.length == 0:
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
