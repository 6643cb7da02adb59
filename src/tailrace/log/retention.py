"""Decides which of a log's oldest segments may be deleted, and why. Pure: `broker/background` carries it out.

The rules are Kafka's. A segment is deleted as a whole, and only if all before it are:

    start    it lies wholly below the start offset
    size     the log without it still has `retention.bytes`
    age      its largest timestamp is more than `retention.ms` ago

and only if all of it is flushed. The active segment is no exception, or a topic without new records would keep its last
ones for ever: the caller rolls the log before it deletes that segment. An empty segment is kept.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from tailrace.log.log import Log


class Reason(StrEnum):
    """The reason why records are deleted, as it appears in logs and metrics."""

    START = "start"
    SIZE = "size"
    AGE = "age"
    BUDGET = "budget"
    DELETE_RECORDS = "delete_records"
    HOLD_CAP = "hold_cap"
    HOLD_EXPIRED = "hold_expired"


class SegmentFacts(NamedTuple):
    """The facts about a segment that the decision needs. `end_offset` is where the next segment begins, or the log
    ends.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int | None  # None: not in memory, see `Segment.find_largest_timestamp`


class RetentionLimits(NamedTuple):
    """The bounds of a log, and what its config keeps."""

    start_offset: int
    high_watermark: int
    size: int
    retention_ms: int
    retention_bytes: int


def facts_of(log: Log, first: int = 0) -> Iterator[SegmentFacts]:
    """Yields the facts about each segment from that with the number `first` on, as far as they are in memory."""
    segments = log.segments
    for number in range(first, len(segments)):
        segment, behind = segments[number], number + 1
        end_offset = segments[behind].base_offset if behind < len(segments) else log.end_offset
        yield SegmentFacts(segment.base_offset, end_offset, segment.size, segment.largest_timestamp)


def limits_of(log: Log) -> RetentionLimits:
    view, config = log.view, log.config
    return RetentionLimits(view.start, view.high_watermark, log.size, config.retention_ms, config.retention_bytes)


def deletable(segments: Iterable[SegmentFacts], keep: RetentionLimits, now_ms: int) -> list[Reason]:
    """Returns the reason for each of the oldest segments that may be deleted, in order. The list ends before the first
    segment that is kept, or whose age is unknown.
    """
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
    """Returns whether the segment has records, and all of them are flushed."""
    return segment.base_offset < segment.end_offset <= high_watermark


def _reason(segment: SegmentFacts, left: int, keep: RetentionLimits, now_ms: int) -> Reason | None:
    if segment.end_offset <= keep.start_offset:
        return Reason.START
    if keep.retention_bytes >= 0 and left - segment.size >= keep.retention_bytes:
        return Reason.SIZE
    if keep.retention_ms >= 0 and segment.largest_timestamp is not None:
        return Reason.AGE if now_ms - segment.largest_timestamp > keep.retention_ms else None
    return None


def is_age_missing(segment: SegmentFacts, keep: RetentionLimits) -> bool:
    """Returns whether only its unknown age keeps this segment, the first that is kept."""
    return segment.largest_timestamp is None and keep.retention_ms >= 0 and may_go(segment, keep.high_watermark)
