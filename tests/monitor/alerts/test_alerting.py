"""Alerting: what a round does with what others have written to the alerts topic."""

from typing import cast

import pytest

from tailrace.facts.alerts import Alert, AlertBook, DeliveryTest
from tailrace.monitor.alerts import alerting
from tailrace.monitor.alerts.alert_log import AlertLog
from tailrace.monitor.alerts.alerting import Alerting
from tailrace.monitor.alerts.deliveries import Deliveries
from tailrace.monitor.alerts.rules import Measurement, Thresholds

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
