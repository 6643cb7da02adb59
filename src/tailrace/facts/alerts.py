"""`__tailrace_alerts`: alerts, silences and tests of delivery. Compacted by their keys.

    alert    written by the monitor when it is raised, repeated, delivered or resolved
    silence  written by `tailrace alert silence`: alerts that it covers are raised, but not delivered
    test     written by `tailrace alert test`, and again by the monitor with what became of it

Times are milliseconds since 1970. Any client may write to the topic: what this release cannot read is skipped.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from tailrace.facts import document
from tailrace.facts.document import Check, UnreadableFact, is_flag, is_number, is_text, is_time, optional

VERSION = 1
KEPT_MAX = 100_000  # alerts, silences, and tests, of each; more are skipped

T = TypeVar("T")


class AlertRule(StrEnum):
    LOSS_AHEAD = "loss_ahead"
    LOSS = "loss"
    GROUP_STOPPED = "group_stopped"
    LAG_SECONDS = "lag_seconds"
    DISK_BUFFER = "disk_buffer"
    HOLD_NEARLY_FULL = "hold_nearly_full"
    CANNOT_DELIVER = "cannot_deliver"


class Severity(StrEnum):
    PAGE = "page"
    WARNING = "warning"


class AlertState(StrEnum):
    RAISED = "raised"
    RESOLVED = "resolved"


_PAGES = (AlertRule.LOSS_AHEAD, AlertRule.LOSS, AlertRule.DISK_BUFFER)


class AlertKey(NamedTuple):
    """Group and topic are empty where a rule is not about one."""

    rule: AlertRule
    group: str = ""
    topic: str = ""

    def encode(self) -> bytes:
        return document.encode(VERSION, {"kind": "alert", "of": list(self)})


class Alert(NamedTuple):
    """One rule for one group and topic; `partition` is the worst one. `at` is the time of the last change, `since` that
    of the first. `told_value` is the value of the last change that is delivered, and `told_at` the time of the last
    delivery that has succeeded; `is_final` marks the last alert of a group without members and commits.
    """

    rule: AlertRule
    group: str
    topic: str
    partition: int | None
    state: AlertState
    since: int
    at: int
    value: float | None
    threshold: float
    message: str
    told_value: float | None = None
    told_at: int | None = None
    is_final: bool = False

    @property
    def key(self) -> AlertKey:
        return AlertKey(self.rule, self.group, self.topic)

    @property
    def alert_id(self) -> str:
        """The same each time that the rule is broken by the group and topic."""
        return ":".join(filter(None, self.key))

    @property
    def severity(self) -> Severity:
        return Severity.PAGE if self.rule in _PAGES else Severity.WARNING

    @property
    def is_told(self) -> bool:
        """Whether the last change has been delivered."""
        return self.told_at is not None and self.told_at >= self.at

    @property
    def is_raised(self) -> bool:
        return self.state is AlertState.RAISED

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


class Silence(NamedTuple):
    """Empty texts cover everything."""

    group: str
    rule: str
    topic: str
    until: int

    def covers(self, alert: Alert, now_ms: int) -> bool:
        wanted = ((self.group, alert.group), (self.rule, alert.rule), (self.topic, alert.topic))
        return now_ms < self.until and all(not said or said == of_alert for said, of_alert in wanted)

    @property
    def key(self) -> bytes:
        return document.encode(VERSION, {"kind": "silence", "of": [self.group, self.rule, self.topic]})

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


class DeliveryTest(NamedTuple):
    """`to` is empty for all targets. `outcomes` by target, such as "delivered"; None until the monitor has tried."""

    test_id: str
    to: str
    at: int
    outcomes: dict[str, str] | None = None

    @property
    def key(self) -> bytes:
        return document.encode(VERSION, {"kind": "test", "of": [self.test_id]})

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


class AlertBook:
    """The state in the records of the topic, which are applied in order."""

    def __init__(self) -> None:
        self.alerts: dict[bytes, Alert] = {}
        self.silences: dict[bytes, Silence] = {}
        self.tests: dict[bytes, DeliveryTest] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Skips records that this release cannot read."""
        if key is None:
            return
        if value is None:
            for kept in (self.alerts, self.silences, self.tests):
                kept.pop(key, None)
            return
        try:
            self._take(key, value)
        except UnreadableFact:
            return

    def _take(self, key: bytes, value: bytes) -> None:
        kind = document.decode(key, VERSION).get("kind")
        fields = document.decode(value, VERSION)
        try:
            if kind == "alert":
                alert = _alert(fields)
                _keep(self.alerts, key, alert, alert.key.encode())
            elif kind == "silence":
                silence = _silence(fields)
                _keep(self.silences, key, silence, silence.key)
            elif kind == "test":
                test = _test(fields)
                _keep(self.tests, key, test, test.key)
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableFact(f"not a record about alerts: {error}") from None

    def silenced_until(self, alert: Alert, now_ms: int) -> int | None:
        """None if no silence covers the alert."""
        return max((one.until for one in self.silences.values() if one.covers(alert, now_ms)), default=None)

    def listed(self, *, all_of_them: bool) -> Iterable[Alert]:
        """The raised ones, or all, the newest first."""
        alerts = (one for one in self.alerts.values() if all_of_them or one.is_raised)
        return sorted(alerts, key=lambda one: (-one.since, one.alert_id))


def _keep(kept: dict[bytes, T], key: bytes, value: T, own_key: bytes) -> None:
    """A record under a key that is not its own could not be replaced."""
    if key != own_key:
        raise UnreadableFact("the key is that of another record")
    if key in kept or len(kept) < KEPT_MAX:
        kept[key] = value


_ALERT: dict[str, Check] = {
    **dict.fromkeys(("group", "topic", "message"), is_text),
    **dict.fromkeys(("since", "at"), is_time),
    **dict.fromkeys(("partition", "value", "told_value"), optional(is_number)),
    "threshold": is_number,
    "told_at": optional(is_time),
    "is_final": is_flag,
}
_SILENCE: dict[str, Check] = {**dict.fromkeys(("group", "rule", "topic"), is_text), "until": is_time}


def _alert(fields: dict[str, Any]) -> Alert:
    document.require(fields, _ALERT)
    rule, state = AlertRule(fields["rule"]), AlertState(fields["state"])
    return Alert(**{**fields, "rule": rule, "state": state})


def _silence(fields: dict[str, Any]) -> Silence:
    document.require(fields, _SILENCE)
    return Silence(**fields)


def _test(fields: dict[str, Any]) -> DeliveryTest:
    document.require(fields, {"test_id": is_text, "to": is_text, "at": is_time, "outcomes": optional(_are_outcomes)})
    return DeliveryTest(**fields)


def _are_outcomes(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_text, value.values()))


def as_json(alert: Alert, time: Any, silenced_until: int | None = None) -> dict[str, Any]:
    """Returns an alert as `tailrace alert list` prints it, and as it is delivered. `time` formats milliseconds."""
    return {
        "id": alert.alert_id,
        "rule": alert.rule,
        "severity": alert.severity,
        "group": alert.group or None,
        "topic": alert.topic or None,
        "partition": alert.partition,
        "state": alert.state,
        "since": time(alert.since),
        "value": alert.value,
        "threshold": alert.threshold,
        "message": alert.message,
        "silenced_until": None if silenced_until is None else time(silenced_until),
    }
