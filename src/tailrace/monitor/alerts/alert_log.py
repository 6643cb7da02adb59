"""The alerts topic as the monitor uses it: reads what others and an earlier process wrote, and writes its own."""

from tailrace.client.cluster.cluster import Cluster
from tailrace.facts.alerts import Alert, AlertBook, DeliveryTest
from tailrace.monitor.alerts.publisher import Publisher
from tailrace.monitor.sources.published import TopicReader

ALERTS_TOPIC = "__tailrace_alerts"
RESOLVED_MS = 7 * 24 * 3600 * 1000  # a resolved alert is listed for so long
TEST_MS = 3600 * 1000


class AlertLog:
    def __init__(self, cluster: Cluster) -> None:
        self.book = AlertBook()
        self._reader = TopicReader(cluster, ALERTS_TOPIC)
        self._publisher = Publisher(cluster, ALERTS_TOPIC)

    def read(self) -> None:
        """Reads what has been written since the last call; the first call reads all. Raises ClientError."""
        for record in self._reader.read():
            self.book.take(record.key, record.value)

    def write(self, alert: Alert) -> None:
        self.put(alert.key.encode(), alert.encode())

    def write_test(self, test: DeliveryTest) -> None:
        self.put(test.key, test.encode())

    def put(self, key: bytes, value: bytes | None) -> None:
        self.book.take(key, value)
        self._publisher.put(key, value)

    def expire(self, now_ms: int) -> None:
        """Removes what is no longer needed."""
        book = self.book
        old = [key for key, alert in book.alerts.items() if not alert.is_raised and alert.at < now_ms - RESOLVED_MS]
        old += [key for key, silence in book.silences.items() if silence.until < now_ms]
        old += [key for key, test in book.tests.items() if test.at < now_ms - TEST_MS]
        for key in old:
            self.put(key, None)

    def flush(self) -> None:
        """Raises ClientError; the next call then writes what is missing."""
        self._publisher.flush()
