"""Alerts from measurement to delivery: what is raised or resolved is written to the alerts topic and delivered.

An alert that a silence covers is raised and listed, and delivered when the silence ends and it is still raised. What
was not delivered before the monitor ended is delivered by the next one: a target may get an alert twice, never not.
"""

from itertools import islice

from tailrace.facts.alerts import Alert
from tailrace.monitor.alerts.activity import Activity
from tailrace.monitor.alerts.alert_log import AlertLog
from tailrace.monitor.alerts.alerts import Alerts
from tailrace.monitor.alerts.deliveries import Deliveries
from tailrace.monitor.alerts.rules import Measurement, Thresholds, observe

TESTS_AT_ONCE = 3


class Alerting:
    """Raises what reading the alerts topic raises."""

    def __init__(self, log: AlertLog, deliveries: Deliveries, thresholds: Thresholds) -> None:
        self._log = log
        self._deliveries = deliveries
        self._thresholds = thresholds
        log.read()
        before = list(log.book.alerts.values())
        self._alerts = Alerts(before)
        self._activity = Activity(one for one in before if one.is_raised)

    def evaluate(self, measured: Measurement) -> None:
        """Runs one round. Raises ClientError; the next round then writes what is missing."""
        now_ms = measured.at
        self._log.read()
        self._activity.note(measured.groups, now_ms)
        alarming = {key.group for key in self._alerts.raised}
        failing = self._deliveries.failing
        observations = observe(measured, self._thresholds, self._activity, failing, alarming)
        idle = self._activity.idle(self._thresholds.idle_ms, now_ms)
        for change in self._alerts.evaluate(observations, idle, now_ms):
            self._log.write(change.alert)
        try:
            self._log.flush()  # what is delivered can be listed
        finally:  # and is delivered, too, when it cannot be written
            for alert in list(self._log.book.alerts.values()):
                if not alert.is_told:
                    self._offer(alert, now_ms)
        self._note_delivered(now_ms)
        self._run_tests(now_ms)
        self._log.expire(now_ms)
        self._log.flush()

    def _offer(self, alert: Alert, now_ms: int) -> None:
        if not alert.is_raised and alert.told_at is None and not self._deliveries.has(alert.key):
            self._log.write(alert._replace(told_at=now_ms))  # it was silenced all the time
        elif self._log.book.silenced_until(alert, now_ms) is not None:
            self._deliveries.withdraw(alert.key)
        else:
            self._deliveries.submit(alert)

    def _note_delivered(self, now_ms: int) -> None:
        for alert in self._deliveries.collect():
            self._alerts.told(alert, now_ms)
            current = self._log.book.alerts.get(alert.key.encode())
            if current is not None:
                is_current = (current.at, current.state) == (alert.at, alert.state)
                self._log.write(current._replace(told_at=now_ms if is_current else alert.at))

    def _run_tests(self, now_ms: int) -> None:
        """Any client may ask for tests, each of which takes seconds: the others wait for the next round."""
        wanted = (test for test in self._log.book.tests.values() if test.outcomes is None)
        for test in list(islice(wanted, TESTS_AT_ONCE)):
            self._log.write_test(test._replace(outcomes=self._deliveries.test(test.to, now_ms)))
