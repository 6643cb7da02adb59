"""Raises and resolves alerts: what the rules observe, and what was raised before, becomes changes. Pure.

    raised    when a rule has been broken in `RAISED_AFTER` evaluations in a row
    repeated  while raised, if it is about a time that is left, when half of the time that was told is left
    resolved  when the rule has been clearly kept for `CLEAR_MS`, or at once when the group has caught up; also when
              what it is about is gone for as long
    closed    without a word, when its group is idle: such a group gets one last alert `group_stopped`, and no other
              until it has members or commits again

The raised alerts are all that a restart needs; evaluations that had not raised one yet begin anew.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from tailrace.facts.alerts import Alert, AlertKey, AlertRule, AlertState

RAISED_AFTER = 2
CLEAR_MS = 5 * 60 * 1000
_LAST = "This is the last alert of a group without members and commits, until it returns."


class Observation(NamedTuple):
    """One rule for one group and topic, in one evaluation.

    `is_clear` if the rule is kept by a margin, `is_over` if there is nothing left to warn about. `value` is None for
    never; `counts_down` if it is a time that is left.
    """

    key: AlertKey
    value: float | None
    threshold: float
    is_broken: bool
    is_clear: bool
    message: str
    partition: int | None = None
    is_over: bool = False
    counts_down: bool = False


class ChangeKind(StrEnum):
    RAISED = "raised"
    REPEATED = "repeated"
    RESOLVED = "resolved"
    CLOSED = "closed"


class Change(NamedTuple):
    kind: ChangeKind
    alert: Alert


class Alerts:
    def __init__(self, before: Iterable[Alert] = ()) -> None:
        """`before` are the alerts of an earlier process."""
        self.raised = {alert.key: alert for alert in before if alert.is_raised}
        self._broken: dict[AlertKey, int] = {}  # evaluations in a row, of rules that are not raised
        self._clear_since: dict[AlertKey, int] = {}

    def evaluate(self, observations: Iterable[Observation], idle: Collection[str], now_ms: int) -> list[Change]:
        """`idle` are the groups without members and commits for long."""
        by_key = {one.key: one for one in observations if one.key.group not in idle or _is_last_word(one)}
        self._broken = {key: count for key, count in self._broken.items() if key in by_key}
        changes = [*self._close(idle, now_ms)]
        for observation in by_key.values():
            change = self._evaluate(observation, is_idle=observation.key.group in idle, now_ms=now_ms)
            if change is not None:
                changes.append(change)
        changes += self._resolve_gone(by_key.keys(), now_ms)
        return changes

    def told(self, alert: Alert, now_ms: int) -> None:
        """Notes that this alert was delivered. It may have changed since."""
        current = self.raised.get(alert.key)
        if current is not None:
            told_at = now_ms if current.at == alert.at else alert.at
            self.raised[alert.key] = current._replace(told_at=told_at)

    def _evaluate(self, seen: Observation, *, is_idle: bool, now_ms: int) -> Change | None:
        alert = self.raised.get(seen.key)
        if alert is None:
            return self._raise(seen, is_idle=is_idle, now_ms=now_ms)
        if seen.is_over:
            return self._resolve(alert, seen.message, now_ms)
        if seen.is_clear:
            since = self._clear_since.setdefault(seen.key, now_ms)
            return self._resolve(alert, seen.message, now_ms) if now_ms - since >= CLEAR_MS else None
        self._clear_since.pop(seen.key, None)
        if is_idle and not alert.is_final:
            return self._repeat(alert, seen, now_ms, is_final=True)
        has_halved = alert.told_value is not None and seen.value is not None and seen.value <= alert.told_value / 2
        if seen.counts_down and seen.is_broken and has_halved and (alert.told_value or 0) > 0:
            return self._repeat(alert, seen, now_ms, is_final=alert.is_final)
        return None

    def _raise(self, seen: Observation, *, is_idle: bool, now_ms: int) -> Change | None:
        if not seen.is_broken:
            self._broken.pop(seen.key, None)
            return None
        self._broken[seen.key] = self._broken.get(seen.key, 0) + 1
        if self._broken[seen.key] < RAISED_AFTER:
            return None
        del self._broken[seen.key]
        alert = Alert(
            *seen.key,
            partition=seen.partition,
            state=AlertState.RAISED,
            since=now_ms,
            at=now_ms,
            value=seen.value,
            threshold=seen.threshold,
            message=_message(seen, is_final=is_idle),
            told_value=seen.value,
            is_final=is_idle,
        )
        self.raised[seen.key] = alert
        return Change(ChangeKind.RAISED, alert)

    def _repeat(self, alert: Alert, seen: Observation, now_ms: int, *, is_final: bool) -> Change:
        repeated = alert._replace(
            partition=seen.partition,
            at=now_ms,
            value=seen.value,
            message=_message(seen, is_final=is_final),
            told_value=seen.value,
            is_final=is_final,
        )
        self.raised[alert.key] = repeated
        return Change(ChangeKind.REPEATED, repeated)

    def _resolve(self, alert: Alert, message: str, now_ms: int, kind: ChangeKind = ChangeKind.RESOLVED) -> Change:
        del self.raised[alert.key]
        self._clear_since.pop(alert.key, None)
        told_at = now_ms if kind is ChangeKind.CLOSED else alert.told_at
        resolved = alert._replace(state=AlertState.RESOLVED, at=now_ms, message=message, told_at=told_at)
        return Change(kind, resolved)

    def _close(self, idle: Collection[str], now_ms: int) -> Iterator[Change]:
        for alert in list(self.raised.values()):
            if alert.group in idle and alert.rule is not AlertRule.GROUP_STOPPED:
                yield self._resolve(alert, alert.message, now_ms, ChangeKind.CLOSED)

    def _resolve_gone(self, seen: Collection[AlertKey], now_ms: int) -> Iterator[Change]:
        for alert in [one for key, one in self.raised.items() if key not in seen]:
            if now_ms - self._clear_since.setdefault(alert.key, now_ms) >= CLEAR_MS:
                yield self._resolve(alert, f"{_subject(alert.key)} is no longer observed", now_ms)


def _is_last_word(seen: Observation) -> bool:
    return seen.key.rule is AlertRule.GROUP_STOPPED


def _message(seen: Observation, *, is_final: bool) -> str:
    return f"{seen.message} {_LAST}" if is_final else seen.message


def _subject(key: AlertKey) -> str:
    if key.group:
        return f"group {key.group} on topic {key.topic}" if key.topic else f"group {key.group}"
    return f"what {key.rule} is about"
