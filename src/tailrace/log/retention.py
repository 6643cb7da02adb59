"""Decides which segments of a log need not be kept, from the front, and why. Pure: `broker/background` carries it out.

Kafka's rules. A segment goes whole, and only if all before it go:

    start    all of it lies below the start offset
    size     without it, `retention.bytes` are still there
    age      its largest timestamp is more than `retention.ms` ago

and only where all of it is flushed. The active segment is no exception, or a topic that has become quiet would keep its
last records for ever: whoever deletes it rolls first. An empty one stays.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from tailrace.log.log import Log


class Reason(StrEnum):
    """Why records are deleted, as logs and metrics call it."""

    START = "start"
    SIZE = "size"
    AGE = "age"
    BUDGET = "budget"
    DELETE_RECORDS = "delete_records"


class SegmentFacts(NamedTuple):
    """What has to be known of a segment; `end_offset` is where the next one begins, or the log ends."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int | None  # None: that has to be looked for, see `Segment.find_largest_timestamp`


class Keep(NamedTuple):
    """What a log keeps."""

    start_offset: int
    high_watermark: int
    size: int
    retention_ms: int
    retention_bytes: int


def facts_of(log: Log) -> Iterator[SegmentFacts]:
    """As far as they are in memory."""
    segments = log.segments
    for number, segment in enumerate(segments, 1):
        end_offset = segments[number].base_offset if number < len(segments) else log.end_offset
        yield SegmentFacts(segment.base_offset, end_offset, segment.size, segment.largest_timestamp)


def kept_by(log: Log) -> Keep:
    view, config = log.view, log.config
    return Keep(view.start, view.high_watermark, log.size, config.retention_ms, config.retention_bytes)


def deletable(segments: Iterable[SegmentFacts], keep: Keep, now_ms: int) -> list[Reason]:
    """Why each of the first segments may go, in order; the one behind them stays, or nobody knows its age yet."""
    reasons: list[Reason] = []
    left = keep.size
    for segment in segments:
        reason = _reason(segment, left, keep, now_ms) if may_go(segment, keep.high_watermark) else None
        if reason is None:
            break
        reasons.append(reason)
        left -= segment.size
    return reasons


def may_go(segment: SegmentFacts, high_watermark: int) -> bool:
    """Whether there is anything in it, and all of that is flushed."""
    return segment.base_offset < segment.end_offset <= high_watermark


def _reason(segment: SegmentFacts, left: int, keep: Keep, now_ms: int) -> Reason | None:
    if segment.end_offset <= keep.start_offset:
        return Reason.START
    if keep.retention_bytes >= 0 and left - segment.size >= keep.retention_bytes:
        return Reason.SIZE
    if keep.retention_ms >= 0 and segment.largest_timestamp is not None:
        return Reason.AGE if now_ms - segment.largest_timestamp > keep.retention_ms else None
    return None


def is_age_missing(segment: SegmentFacts, keep: Keep) -> bool:
    """Of the first that stays: whether that is only because nobody knows its age yet."""
    return segment.largest_timestamp is None and keep.retention_ms >= 0 and may_go(segment, keep.high_watermark)
