"""The rules of alerts: what each observes in one measurement. Pure; `alerts` decides what becomes of it.

A group is looked at per topic, by its worst partition. A threshold of 0 turns a rule off.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tailrace.facts.alerts import AlertKey, AlertRule
from tailrace.facts.lag import GroupLag, LagRow
from tailrace.facts.losses import Loss
from tailrace.monitor.alerts.activity import Activity
from tailrace.monitor.alerts.alerts import Observation
from tailrace.monitor.figures.buffers import Buffer

MARGIN = 1.5  # between the threshold of an alert and that of its end
HOLD_FILL = 0.8
LATELY_MS = 10 * 60 * 1000  # a loss is observed for so long
_STOPPED = ("stopped", "stalled")


class Thresholds(NamedTuple):
    """Seconds, from `tailrace.alert.*`."""

    loss: int = 3600
    lag: int = 900
    stopped: int = 600
    disk: int = 6 * 3600
    idle_ms: int = 7 * 24 * 3600 * 1000


class HoldLimits(NamedTuple):
    """How much a partition keeps for its named groups: -1 is no limit. `refuses` if producers are refused then."""

    size: int
    ms: int
    groups: frozenset[str]
    refuses: bool


class Measurement(NamedTuple):
    """What the monitor has measured in one round. `ends` has the first offset of partitions, and the one behind the
    last.
    """

    at: int
    groups: Sequence[GroupLag]
    losses: Sequence[Loss] = ()
    holds: Mapping[tuple[str, int], HoldLimits] = {}
    ends: Mapping[tuple[str, int], tuple[int, int]] = {}
    topic_buffers: Mapping[str, Buffer] = {}
    disk_buffers: Mapping[str, Buffer] = {}
    source: str = "tailrace"
    seconds: float = 0.0  # that the measurement took


def observe(
    measured: Measurement,
    thresholds: Thresholds,
    activity: Activity,
    failing: Mapping[str, str],
    alarming: Collection[str] = (),
) -> Iterator[Observation]:
    """`failing` has the errors of targets that alerts cannot be delivered to, and `alarming` the groups with alerts:
    of another group that has read everything, and has lost nothing, there is nothing to observe.
    """
    lost = _lost_lately(measured)
    concerned = {*alarming, *(group for group, _ in lost)}
    for group in measured.groups:
        if group.group not in concerned and _has_caught_up(group.rows):
            continue
        for topic, rows in _by_topic(group):
            yield from _of_group(measured, thresholds, activity, group.group, topic, rows)
            count = lost.pop((group.group, topic), 0)
            yield _loss(group.group, topic, rows, count)
    for (name, topic), count in lost.items():  # of groups that have no offsets any more
        yield _loss(name, topic, [], count)
    if thresholds.disk:
        left = [one.today for one in measured.disk_buffers.values() if one.today is not None]
        yield _disk(min(left, default=None), thresholds.disk)
    yield _delivery(failing)


def _by_topic(group: GroupLag) -> Iterator[tuple[str, list[LagRow]]]:
    rows = sorted(group.rows, key=lambda row: (row.topic, row.partition))
    for topic, of_topic in groupby(rows, key=lambda row: row.topic):
        yield topic, list(of_topic)


def _of_group(
    measured: Measurement, thresholds: Thresholds, activity: Activity, group: str, topic: str, rows: list[LagRow]
) -> Iterator[Observation]:
    now_ms = measured.at
    if thresholds.loss:
        yield _loss_ahead(group, topic, rows, thresholds.loss, now_ms)
    if thresholds.stopped:
        yield _stopped(group, topic, rows, thresholds.stopped, activity.seconds(group, now_ms))
    if thresholds.lag:
        yield _lag(group, topic, rows, thresholds.lag, now_ms)
    held = [(row, hold) for row in rows if (hold := measured.holds.get((topic, row.partition))) is not None]
    if held := [(row, hold) for row, hold in held if group in hold.groups]:
        yield _hold(group, topic, held, now_ms)


def _lost_lately(measured: Measurement) -> dict[tuple[str, str], int]:
    lost: Counter[tuple[str, str]] = Counter()
    for loss in measured.losses:
        if loss.at >= measured.at - LATELY_MS:
            lost[loss.group, loss.topic] += loss.records
    return dict(lost)


def _loss_ahead(group: str, topic: str, rows: list[LagRow], threshold: int, now_ms: int) -> Observation:
    worst, left = _worst(rows, lambda row: row.loss_low_seconds(now_ms), is_large_worse=False)
    where = f"{topic}-{worst.partition}"
    reason = f" (rule: {worst.rule})" if worst.rule else ""
    return Observation(
        AlertKey(AlertRule.LOSS_AHEAD, group, topic),
        left,
        threshold,
        is_broken=left is not None and left < threshold,
        is_clear=left is None or left > MARGIN * threshold,
        message=(
            f"group {group} begins to miss messages of {where} in {_duration(left)}{reason}. Start or speed up its "
            f"consumers, or keep messages for it: tailrace.backlog.policy=hold, tailrace.backlog.groups={group}."
            if left is not None
            else f"group {group} misses no messages of {topic} at the present rates."
        ),
        partition=worst.partition,
        is_over=_has_caught_up(rows),
        counts_down=True,
    )


def _loss(group: str, topic: str, rows: list[LagRow], lost: int) -> Observation:
    unread = sum(row.unread_lost for row in rows)
    count = max(unread, lost)
    worst = max(rows, key=lambda row: row.unread_lost, default=None)
    return Observation(
        AlertKey(AlertRule.LOSS, group, topic),
        count,
        0,
        is_broken=count > 0,
        is_clear=count == 0,
        message=(
            f"group {group} has lost {count:,} messages of {topic} that it had not read. "
            f"`tailrace lag {group} --losses` names them."
            if count
            else f"group {group} has lost no more messages of {topic}."
        ),
        partition=worst.partition if worst is not None else None,
    )


def _stopped(group: str, topic: str, rows: list[LagRow], threshold: int, seconds: float) -> Observation:
    stopped = [row for row in rows if row.state in _STOPPED]
    worst = max(stopped or rows, key=lambda row: row.lag_records)
    behind = sum(row.lag_records for row in rows)
    how = "has no members" if worst.state == "stopped" else "has members, and commits nothing"
    return Observation(
        AlertKey(AlertRule.GROUP_STOPPED, group, topic),
        max(seconds, float(threshold)) if stopped else 0.0,
        threshold,
        is_broken=bool(stopped),
        is_clear=not stopped,
        message=(
            f"group {group} {how}, and {behind:,} messages of {topic} wait for it. Start its consumers, or look at "
            f"what they wait for: `tailrace group show {group}`."
            if stopped
            else f"group {group} reads {topic} again."
        ),
        partition=worst.partition,
        is_over=_has_caught_up(rows),
    )


def _lag(group: str, topic: str, rows: list[LagRow], threshold: int, now_ms: int) -> Observation:
    worst, behind = _worst(rows, lambda row: row.lag_seconds(now_ms), is_large_worse=True)
    seconds = behind or 0.0
    return Observation(
        AlertKey(AlertRule.LAG_SECONDS, group, topic),
        behind,
        threshold,
        is_broken=seconds > threshold,
        is_clear=seconds < threshold / MARGIN,
        message=f"group {group} is {_duration(seconds)} behind on {topic}-{worst.partition}.",
        partition=worst.partition,
        is_over=_has_caught_up(rows),
    )


def _hold(group: str, topic: str, held: list[tuple[LagRow, HoldLimits]], now_ms: int) -> Observation:
    worst, fill = max(((row, _fill(row, hold, now_ms)) for row, hold in held), key=lambda one: one[1])
    then = "producers are refused" if held[0][1].refuses else "the oldest of them are deleted"
    return Observation(
        AlertKey(AlertRule.HOLD_NEARLY_FULL, group, topic),
        round(fill, 3),
        HOLD_FILL,
        is_broken=fill >= HOLD_FILL,
        is_clear=fill < HOLD_FILL / MARGIN,
        message=(
            f"the messages of {topic}-{worst.partition} that are kept for group {group} take {fill:.0%} of their "
            f"limit; at 100 % {then}."
        ),
        partition=worst.partition,
        is_over=_has_caught_up([row for row, _ in held]),
    )


def _fill(row: LagRow, hold: HoldLimits, now_ms: int) -> float:
    fills = [0.0]
    if hold.size > 0 and row.lag_bytes is not None:
        fills.append(row.lag_bytes / hold.size)
    if hold.ms > 0:
        fills.append((row.lag_seconds(now_ms) or 0.0) * 1000 / hold.ms)
    return max(fills)


def _disk(left: float | None, threshold: int) -> Observation:
    return Observation(
        AlertKey(AlertRule.DISK_BUFFER),
        left,
        threshold,
        is_broken=left is not None and left < threshold,
        is_clear=left is None or left > MARGIN * threshold,
        message=(
            f"the disk is full in {_duration(left)} at today's rate. Shorten retention, set tailrace.disk.budget, or "
            "add disk."
            if left is not None
            else "the disk does not fill up at today's rate."
        ),
        counts_down=True,
    )


def _delivery(failing: Mapping[str, str]) -> Observation:
    errors = "; ".join(f"{target}: {error}" for target, error in sorted(failing.items()))
    return Observation(
        AlertKey(AlertRule.CANNOT_DELIVER),
        len(failing),
        0,
        is_broken=bool(failing),
        is_clear=not failing,
        message=f"alerts cannot be delivered: {errors}." if failing else "alerts are delivered again.",
        is_over=not failing,
    )


def _worst(
    rows: Iterable[LagRow], value: Callable[[LagRow], float | None], *, is_large_worse: bool
) -> tuple[LagRow, float | None]:
    """The row with the largest value, or the smallest; rows without a value come last."""

    def order(row: LagRow) -> tuple[bool, float]:
        found = value(row)
        return found is None, 0.0 if found is None else -found if is_large_worse else found

    worst = min(rows, key=order)
    return worst, value(worst)


def _has_caught_up(rows: Iterable[LagRow]) -> bool:
    return not any(row.lag_records or row.unread_lost for row in rows)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
