"""Alerting: what a round does with what others have written to the alerts topic."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.facts import alerts as format_of
from tailrace.facts import document
from tailrace.facts.alerts import Alert, AlertBook, AlertRule, AlertState, DeliveryTest, Silence, as_json
from tailrace.monitor.alerts import alerting
from tailrace.monitor.alerts.alert_log import AlertLog
from tailrace.monitor.alerts.alerting import Alerting
from tailrace.monitor.alerts.deliveries import Deliveries
from tailrace.monitor.alerts.rules import Measurement, Thresholds
from tailrace.monitor.figures.report import rfc3339

NOW_MS = 1_000_000


class LogInMemory:
    """The alerts topic without a cluster."""

    def __init__(self) -> None:
        self.book = AlertBook()

    def write(self, alert: Alert) -> None:
        self.book.take(alert.key.encode(), alert.encode())

    def write_test(self, test: DeliveryTest) -> None:
        self.book.take(test.key, test.encode())

    def read(self) -> None:
        """There is nothing else to read."""

    def flush(self) -> None:
        """It is written already."""

    def expire(self, now_ms: int) -> None:
        """Nothing is that old."""


def test_many_tests_of_delivery_take_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may ask for them, and each may take ten seconds for each target."""
    monkeypatch.setattr(alerting, "TESTS_AT_ONCE", 3)
    log = LogInMemory()
    for number in range(7):
        log.write_test(DeliveryTest(str(number), "log", NOW_MS))
    rounds = Alerting(cast(AlertLog, log), Deliveries([]), Thresholds())
    done = []
    for _ in range(3):
        rounds.evaluate(Measurement(NOW_MS, []))
        done.append(sum(test.outcomes is not None for test in log.book.tests.values()))
    assert done == [3, 6, 7]


RAISED = Alert(AlertRule.LOSS, "billing", "orders", 0, AlertState.RAISED, 0, 0, 1.0, 0.0, "lost")
RECORDS = {
    "alert": (RAISED.key.encode(), RAISED._asdict()),
    "silence": (Silence("billing", "", "", 0).key, Silence("billing", "", "", NOW_MS + 1)._asdict()),
    "test": (DeliveryTest("one", "", 0).key, DeliveryTest("one", "", NOW_MS)._asdict()),
}
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(1 << 80), 1 << 80), st.floats(), st.text(max_size=3),
    st.sampled_from(["\ud800", 10**18, {"log": 1}, [], {}]),
)  # fmt: skip


@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_no_record_of_a_client_stops_the_monitor_or_a_listing(kind: str, data: st.DataObject) -> None:
    key, fields = RECORDS[kind]
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), VALUES, max_size=3))
    log = LogInMemory()
    log.book.take(key, json.dumps({"version": 1, **fields, **changed}).encode())
    delivered = OneTarget()
    rounds = Alerting(cast(AlertLog, log), Deliveries([delivered]), Thresholds())
    log.book.take(key, json.dumps({"version": 1, **fields, **changed}).encode())
    rounds.evaluate(Measurement(NOW_MS, []))
    for alert in log.book.listed(all_of_them=True):
        json.dumps(as_json(alert, rfc3339, log.book.silenced_until(alert, NOW_MS)), allow_nan=False).encode()


class OneTarget:
    """A target that formats alerts as the webhook does."""

    name = "log"

    def deliver(self, alert: Alert) -> None:
        json.dumps(as_json(alert, rfc3339), ensure_ascii=False).encode()


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_a_record_under_the_key_of_another_is_skipped(kind: str) -> None:
    key, fields = RECORDS[kind]
    book, value = AlertBook(), document.encode(1, fields)
    book.take(key[:-1] + b" }", value)
    assert (book.alerts, book.silences, book.tests) == ({}, {}, {})
    book.take(key, value)
    assert (book.alerts, book.silences, book.tests) != ({}, {}, {})


def test_what_clients_write_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_of, "KEPT_MAX", 2)
    book = AlertBook()
    for number in range(4):
        silence = Silence(str(number), "", "", NOW_MS)
        book.take(silence.key, silence.encode())
    assert [one.group for one in book.silences.values()] == ["0", "1"]
    later = Silence("1", "", "", 2 * NOW_MS)
    book.take(later.key, later.encode())
    assert book.silences[later.key] == later
