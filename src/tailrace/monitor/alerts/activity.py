"""Since when groups have been without members and commits. Pure; times are milliseconds."""

from collections.abc import Iterable

from tailrace.facts.alerts import Alert, AlertRule
from tailrace.facts.lag import GroupLag


class Activity:
    def __init__(self, before: Iterable[Alert] = ()) -> None:
        """After a restart, `before` are the raised alerts: a group that had stopped has been idle since then."""
        self._since: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        for alert in before:
            if alert.rule is AlertRule.GROUP_STOPPED:
                self._since[alert.group] = min(alert.since, self._since.get(alert.group, alert.since))

    def note(self, groups: Iterable[GroupLag], now_ms: int) -> None:
        """Groups that are not among `groups` are forgotten."""
        since: dict[str, int] = {}
        positions: dict[str, int] = {}
        for one in groups:
            positions[one.group] = hash(tuple((row.topic, row.partition, row.committed) for row in one.rows))
            has_moved = self._positions.get(one.group, positions[one.group]) != positions[one.group]
            is_active = one.has_members or has_moved
            since[one.group] = now_ms if is_active else self._since.get(one.group, now_ms)
        self._since, self._positions = since, positions

    def seconds(self, group: str, now_ms: int) -> float:
        """How long the group has been without members and commits, as far as this process knows."""
        return (now_ms - self._since.get(group, now_ms)) / 1000

    def idle(self, idle_ms: int, now_ms: int) -> set[str]:
        return {group for group, since in self._since.items() if now_ms - since >= idle_ms}
