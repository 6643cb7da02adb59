"""Alerts on a virtual clock: raised once, resolved once, with hysteresis, across restarts."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.facts.alerts import Alert, AlertBook, AlertKey, AlertRule
from tailrace.facts.lag import GroupLag, LagRow
from tailrace.monitor.alerts.activity import Activity
from tailrace.monitor.alerts.alerts import CLEAR_MS, Alerts, Change, ChangeKind, Observation
from tailrace.monitor.alerts.rules import HoldLimits, Measurement, Thresholds, observe
from tailrace.monitor.figures.buffers import Buffer

INTERVAL_MS = 15_000
DAY_MS = 24 * 3600 * 1000
KEY = AlertKey(AlertRule.LOSS_AHEAD, "billing", "orders")


def seen(value: float, **fields: Any) -> Observation:
    threshold = 3600.0
    broken, clear = value < threshold, value > 1.5 * threshold
    return Observation(KEY, value, threshold, broken, clear, f"{value}", counts_down=True, **fields)


class Clock:
    """Evaluates one observation after the other, and delivers each change at once."""

    def __init__(self) -> None:
        self.alerts = Alerts()
        self.now_ms = 1_000_000
        self.book = AlertBook()
        self.kinds: list[ChangeKind] = []

    def evaluate(self, *observations: Observation, idle: frozenset[str] = frozenset()) -> list[ChangeKind]:
        self.now_ms += INTERVAL_MS
        changes = self.alerts.evaluate(observations, idle, self.now_ms)
        for change in changes:
            self.note(change)
        self.kinds += [change.kind for change in changes]
        return [change.kind for change in changes]

    def note(self, change: Change) -> None:
        alert = change.alert
        self.alerts.told(alert, self.now_ms)
        self.book.take(alert.key.encode(), alert._replace(told_at=self.now_ms).encode())

    def restart(self) -> None:
        self.alerts = Alerts(self.book.alerts.values())


def test_an_alert_is_raised_after_two_evaluations_and_only_once() -> None:
    clock = Clock()
    assert clock.evaluate(seen(1000)) == []
    assert clock.evaluate(seen(1000)) == [ChangeKind.RAISED]
    assert all(clock.evaluate(seen(1000)) == [] for _ in range(100))


def test_one_bad_evaluation_between_good_ones_raises_nothing() -> None:
    clock = Clock()
    for value in (1000, 9000) * 10:
        assert clock.evaluate(seen(value)) == []


def test_it_is_resolved_after_five_minutes_beyond_the_margin() -> None:
    clock = Clock()
    clock.evaluate(seen(1000))
    clock.evaluate(seen(1000))
    for _ in range(100):
        assert clock.evaluate(seen(3700)) == []  # above the threshold, but not by the margin
    for _ in range(CLEAR_MS // INTERVAL_MS):
        assert clock.evaluate(seen(9000)) == []
    assert clock.evaluate(seen(9000)) == [ChangeKind.RESOLVED]
    assert clock.evaluate(seen(9000)) == []


def test_a_relapse_within_the_five_minutes_begins_them_anew() -> None:
    clock = Clock()
    clock.evaluate(seen(1000))
    clock.evaluate(seen(1000))
    for _ in range(10):
        for _ in range(CLEAR_MS // INTERVAL_MS - 1):
            clock.evaluate(seen(9000))
        clock.evaluate(seen(1000))
    assert clock.kinds == [ChangeKind.RAISED]


def test_a_group_that_has_caught_up_resolves_at_once() -> None:
    clock = Clock()
    clock.evaluate(seen(1000))
    clock.evaluate(seen(1000))
    assert clock.evaluate(seen(1000, is_over=True)) == [ChangeKind.RESOLVED]


def test_it_is_repeated_when_half_of_the_time_is_left() -> None:
    clock = Clock()
    repeated_at = []
    for left in range(3600, 0, -15):
        if ChangeKind.REPEATED in clock.evaluate(seen(left)):
            repeated_at.append(left)
    assert repeated_at == [1785, 885, 435, 210, 105, 45, 15]


def test_what_is_gone_is_resolved_after_five_minutes() -> None:
    clock = Clock()
    clock.evaluate(seen(1000))
    clock.evaluate(seen(1000))
    for _ in range(CLEAR_MS // INTERVAL_MS):
        assert clock.evaluate() == []
    assert clock.evaluate() == [ChangeKind.RESOLVED]


@given(st.lists(st.sampled_from(["broken", "between", "clear", "gone", "restart"]), max_size=200))
def test_alerts_alternate_whatever_happens(steps: list[str]) -> None:
    """Raised and resolved in turns; never raised by a rule that was not broken twice in a row; none forgotten."""
    clock = Clock()
    is_raised, broken_in_a_row = False, 0
    for step in steps:
        if step == "restart":
            clock.restart()
            broken_in_a_row = 0
            assert (KEY in clock.alerts.raised) == is_raised
            continue
        values = {"broken": 3000, "between": 3700, "clear": 9000}
        kinds = clock.evaluate(seen(values[step])) if step in values else clock.evaluate()
        broken_in_a_row = broken_in_a_row + 1 if step == "broken" else 0
        assert len(kinds) <= 1
        if kinds == [ChangeKind.RAISED]:
            assert not is_raised
            assert broken_in_a_row >= 2
        if kinds == [ChangeKind.RESOLVED]:
            assert is_raised
            assert step in ("clear", "gone")
        assert kinds != [ChangeKind.REPEATED]
        is_raised = KEY in clock.alerts.raised
        assert is_raised or broken_in_a_row < 2


# Idle groups, by rules and activity


def row(**fields: Any) -> LagRow:
    values: dict[str, Any] = {
        **{"topic": "orders", "partition": 0, "committed": 10, "start": 0, "end": 10, "state": "ok"},
        **{"lag_records": 0, "lag_bytes": 0, "bytes_exact": True, "unread_at": None, "unread_lost": 0},
        **{"produce_rate": 0.0, "consume_rate": 0.0, "loss_at": None, "loss_low_at": None, "rule": None},
        "estimate": False,
    }
    return LagRow(**{**values, **fields})


def measured(now_ms: int, *rows: LagRow, members: bool = False, **fields: Any) -> Measurement:
    return Measurement(now_ms, [GroupLag("billing", now_ms, members, rows)], **fields)


class Watch:
    """Groups through rules, activity and alerts."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000_000
        self.clock = Clock()
        self.activity = Activity()
        self.delivered: list[tuple[ChangeKind, Alert]] = []

    def evaluate(self, *rows: LagRow, members: bool = False, after_ms: int = INTERVAL_MS, **fields: Any) -> None:
        self.now_ms += after_ms
        now = measured(self.now_ms, *rows, members=members, **fields)
        thresholds = Thresholds()
        self.activity.note(now.groups, self.now_ms)
        idle = self.activity.idle(thresholds.idle_ms, self.now_ms)
        alarming = {key.group for key in self.clock.alerts.raised}
        found = observe(now, thresholds, self.activity, {}, alarming)
        for change in self.clock.alerts.evaluate(found, idle, self.now_ms):
            self.clock.note(change)
            if change.kind is not ChangeKind.CLOSED:
                self.delivered.append((change.kind, change.alert))

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(kind.value, alert.rule.value) for kind, alert in self.delivered]

    def restart(self) -> None:
        self.clock.restart()
        self.activity = Activity(one for one in self.clock.book.alerts.values() if one.is_raised)


def stopped(watch: Watch, **fields: Any) -> LagRow:
    old = watch.now_ms - DAY_MS
    return row(state="stopped", lag_records=5, committed=5, unread_at=old, loss_low_at=watch.now_ms + 60_000, **fields)


def test_an_idle_group_gets_one_last_alert_and_then_none_until_it_returns() -> None:
    watch = Watch()
    for _ in range(4):
        watch.evaluate(stopped(watch))
    assert set(watch.said) == {("raised", "group_stopped"), ("raised", "loss_ahead"), ("raised", "lag_seconds")}
    watch.delivered.clear()
    watch.evaluate(stopped(watch), after_ms=7 * DAY_MS)
    assert watch.said == [("repeated", "group_stopped")]
    assert watch.delivered[0][1].is_final
    assert [key.rule for key in watch.clock.alerts.raised] == [AlertRule.GROUP_STOPPED]
    watch.restart()
    for _ in range(50):
        watch.evaluate(stopped(watch, unread_lost=3), after_ms=DAY_MS)
    assert watch.said == [("repeated", "group_stopped")]
    watch.evaluate(row(committed=10), members=True)
    assert watch.said[-1] == ("resolved", "group_stopped")
    for _ in range(4):
        watch.evaluate(stopped(watch), members=True)
    assert {rule for _, rule in watch.said[2:]} >= {"loss_ahead", "lag_seconds"}


def test_groups_that_keep_up_raise_nothing_in_a_day() -> None:
    watch = Watch()
    for n in range(DAY_MS // INTERVAL_MS):
        behind = n % 50
        rows = row(committed=n, end=n + behind, lag_records=behind, unread_at=watch.now_ms - 1000 * behind)
        watch.evaluate(rows, members=True)
    assert watch.said == []


def test_each_rule_observes_what_it_is_about() -> None:
    now = 10_000_000
    rules = Thresholds()
    hold = {("orders", 0): HoldLimits(1000, -1, frozenset({"billing"}), refuses=False)}
    cases: list[tuple[AlertRule, Measurement, dict[str, str]]] = [
        (AlertRule.LOSS_AHEAD, measured(now, row(lag_records=1, loss_low_at=now + 3_599_000)), {}),
        (AlertRule.LOSS, measured(now, row(unread_lost=1)), {}),
        (AlertRule.GROUP_STOPPED, measured(now, row(state="stalled", lag_records=1)), {}),
        (AlertRule.LAG_SECONDS, measured(now, row(lag_records=1, unread_at=now - 901_000)), {}),
        (AlertRule.DISK_BUFFER, measured(now, disk_buffers={"/data": Buffer(21_599, None)}), {}),
        (AlertRule.HOLD_NEARLY_FULL, measured(now, row(lag_records=1, lag_bytes=800), holds=hold), {}),
        (AlertRule.CANNOT_DELIVER, measured(now), {"webhook": "HTTP 500"}),
    ]
    assert {rule for rule, _, _ in cases} == set(AlertRule)
    for rule, measurement, failing in cases:
        found = list(observe(measurement, rules, Activity(), failing))
        assert [one.key.rule for one in found if one.is_broken] == [rule]
        assert not any(one.is_broken and (one.is_clear or one.is_over) for one in found)
    quiet = list(observe(measured(now, row(), disk_buffers={"/": Buffer(None, None)}), rules, Activity(), {}))
    assert all(one.is_clear and not one.is_broken for one in quiet)


def test_a_threshold_of_zero_turns_a_rule_off() -> None:
    off = Thresholds(loss=0, lag=0, stopped=0, disk=0)
    worst = row(lag_records=1, loss_low_at=0, unread_at=0, state="stopped")
    found = observe(measured(10_000_000, worst, disk_buffers={"/": Buffer(0, 0)}), off, Activity(), {})
    assert {one.key.rule for one in found} == {AlertRule.LOSS, AlertRule.CANNOT_DELIVER}
