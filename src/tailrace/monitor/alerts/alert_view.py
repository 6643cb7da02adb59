"""The alerts of a cluster, for the command line: read, silenced, and their delivery tested."""

import secrets
import time
from collections.abc import Mapping
from types import TracebackType

from tailrace.client.errors import TopicNotFound
from tailrace.facts.alerts import Alert, AlertRule, DeliveryTest, Silence, as_json
from tailrace.monitor.alerts.alert_log import AlertLog
from tailrace.monitor.figures.report import rfc3339
from tailrace.monitor.sources.connection import connect

RULES = tuple(AlertRule)
POLL_S = 0.5


class AlertView:
    """The constructor raises BadProperties; all methods raise ClientError."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._cluster = connect(properties)
        self._log = AlertLog(self._cluster)

    def __enter__(self) -> "AlertView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def alerts(self, *, all_of_them: bool) -> list[tuple[Alert, int | None]]:
        """The raised alerts, or all that are kept, each with the end of its silence."""
        self._log.read()
        now_ms, book = _now_ms(), self._log.book
        return [(alert, book.silenced_until(alert, now_ms)) for alert in book.listed(all_of_them=all_of_them)]

    def silence(self, group: str, rule: str, topic: str, for_ms: int) -> int:
        """Returns when the silence ends."""
        silence = Silence(group, rule, topic, _now_ms() + for_ms)
        self._log.put(silence.key, silence.encode())
        self._log.flush()
        return silence.until

    def remove_silence(self, group: str, rule: str, topic: str) -> bool:
        """Returns whether there was exactly this one."""
        self._log.read()
        key = Silence(group, rule, topic, 0).key
        if key not in self._log.book.silences:
            return False
        self._log.put(key, None)
        self._log.flush()
        return True

    def test(self, to: str, timeout_s: float) -> dict[str, str] | None:
        """Has the monitor deliver a test alert. Returns the outcome by target, or None if no monitor did."""
        test = DeliveryTest(secrets.token_hex(8), to, _now_ms())
        self._log.write_test(test)
        self._log.flush()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            time.sleep(POLL_S)
            try:
                self._log.read()
            except TopicNotFound:
                continue
            if (outcomes := self._log.book.tests[test.key].outcomes) is not None:
                self._log.put(test.key, None)
                self._log.flush()
                return outcomes
        return None


def shown(alert: Alert, silenced_until: int | None) -> dict[str, object]:
    """One alert as `tailrace alert list --json` prints it."""
    return as_json(alert, rfc3339, silenced_until)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
