"""Holds: which records retention and the disk budget must not delete, because a named group has not read them.

A segment is judged as a whole, as retention deletes it:

    free     every named group has read it
    expired  only groups have not that no longer hold: without member and commit for `tailrace.backlog.expiry.ms`
    capped   a group has not, and the records from this segment on are more than the limits of the policy
    held     a group has not

              retention                        disk budget
    free      its own reason                   first, oldest first
    expired   `hold_expired`                   first, oldest first
    capped    `hold` only: `hold_cap`          then, oldest first, as `hold_cap`
    held      kept                             then, `hold` only, oldest first, as `hold_cap`

So `backpressure` and `reject` lose nothing below their limit: when nothing else is left, the disk reserve refuses
producers. Age is by record timestamps, as in retention. Compaction does not ask, nor does a client's deletion.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

from tailrace.broker.backlog.named_groups import NamedGroups, Standing
from tailrace.broker.configs.registry import BacklogConfig, BacklogPolicy
from tailrace.broker.core.partition import Partition
from tailrace.log.log import Log
from tailrace.log.retention import Reason, SegmentFacts, facts_of


class Verdict(Enum):
    FREE = auto()
    EXPIRED = auto()
    CAPPED = auto()
    HELD = auto()


def judge(
    segment: SegmentFacts, bytes_behind: int, standings: Iterable[Standing], config: BacklogConfig, now_ms: int
) -> Verdict:
    """`bytes_behind` are those of all segments behind this one."""
    unread = [standing for standing in standings if standing.offset < segment.end_offset]
    if not unread:
        return Verdict.FREE
    if not any(standing.is_live for standing in unread):
        return Verdict.EXPIRED
    is_too_much = 0 <= config.bytes_max <= bytes_behind
    # The age of what is unread grows while producers are refused, too: then it is no reason to lose it.
    may_be_too_old = config.policy is BacklogPolicy.HOLD and config.age_ms_max >= 0
    newest = segment.largest_timestamp
    is_too_old = may_be_too_old and newest is not None and now_ms - newest > config.age_ms_max
    return Verdict.CAPPED if is_too_much or is_too_old else Verdict.HELD


def allowed(
    segments: Iterable[SegmentFacts],
    reasons: Sequence[Reason],
    size: int,
    standings: Sequence[Standing],
    config: BacklogConfig,
    now_ms: int,
) -> Iterator[Reason]:
    """Yields the reason for each of the oldest segments that may be deleted, of those that retention would delete for
    `reasons`. `size` is that of all segments.
    """
    left = size
    for segment, reason in zip(segments, reasons, strict=False):
        left -= segment.size
        verdict = Verdict.FREE if reason is Reason.START else judge(segment, left, standings, config, now_ms)
        if verdict is Verdict.HELD or (verdict is Verdict.CAPPED and config.limits_producers):
            return
        yield {Verdict.EXPIRED: Reason.HOLD_EXPIRED, Verdict.CAPPED: Reason.HOLD_CAP}.get(verdict, reason)


class Holds:
    def __init__(self, groups: NamedGroups) -> None:
        self._groups = groups

    def allowed(self, partition: Partition, log: Log, reasons: list[Reason], now_ms: int) -> list[Reason]:
        """Returns the reasons for the segments that retention may delete, of those it would."""
        config = partition.topic.config.backlog
        if not reasons or not config.groups:
            return reasons
        if not self._groups.are_known:
            return []
        standings = self._groups.standings(partition, now_ms)
        return list(allowed(facts_of(log), reasons, log.size, standings, config, now_ms))

    def under_budget(self, partition: Partition, log: Log, now_ms: int) -> Reason | None:
        """Returns the reason for which the disk budget may delete the first segment; None if it may not."""
        config = partition.topic.config.backlog
        if not config.groups:
            return Reason.BUDGET
        if not self._groups.are_known:
            return None
        first = next(facts_of(log))
        if first.end_offset <= log.start_offset:
            return Reason.BUDGET
        standings = self._groups.standings(partition, now_ms)
        verdict = judge(first, log.size - first.size, standings, config, now_ms)
        if verdict is Verdict.HELD and config.limits_producers:
            return None
        return _BUDGET_REASONS[verdict]


_BUDGET_REASONS = {
    Verdict.FREE: Reason.BUDGET,
    Verdict.EXPIRED: Reason.HOLD_EXPIRED,
    Verdict.CAPPED: Reason.HOLD_CAP,
    Verdict.HELD: Reason.HOLD_CAP,
}
