"""The monitor's loop: measure, publish, raise alerts, render metrics; once in `tailrace.monitor.interval.ms`.

An error of the cluster costs a round, and nothing else: the time of the last measurement is among the metrics.
"""

import logging
import threading
import time
from collections.abc import Callable

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import ClientError
from tailrace.facts.lag import Beat
from tailrace.monitor.alerts.alert_log import AlertLog
from tailrace.monitor.alerts.alerting import Alerting
from tailrace.monitor.alerts.deliveries import Deliveries, targets_from
from tailrace.monitor.alerts.settings import Settings
from tailrace.monitor.exposition import render
from tailrace.monitor.lag_log import LagLog
from tailrace.monitor.measurer import Measurer

logger = logging.getLogger("tailrace.monitor")


class Service:
    def __init__(self, cluster: Cluster, settings: Settings, cluster_name: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._cluster_name = cluster_name
        self._deliveries = Deliveries(targets_from(settings))
        self._parts: _Parts | None = None
        self._has_failed = False

    def run(self, stop: threading.Event, show: Callable[[str], None]) -> None:
        """Runs until `stop` is set. `show` is given each page of metrics."""
        interval_s = self._settings.interval_ms / 1000
        while not stop.is_set():
            due = time.monotonic() + interval_s
            if (page := self._round()) is not None:
                show(page)
            stop.wait(max(0.0, due - time.monotonic()))
        self._deliveries.stop()
        self._cluster.close()

    def _round(self) -> str | None:
        """Returns a page of metrics, or None after an error."""
        try:
            page = self.round()
        except ClientError as error:
            if not self._has_failed:
                logger.warning("cannot measure lag: %s; trying again each %d ms", error, self._settings.interval_ms)
            self._has_failed = True
            return None
        if self._has_failed:
            logger.info("lag is measured again")
        self._has_failed = False
        return page

    def round(self) -> str:
        """Runs one round. Raises ClientError."""
        if self._parts is None:
            self._parts = _Parts(self._cluster, self._settings, self._deliveries)
        parts = self._parts
        measured = parts.measurer.measure()
        parts.lag_log.write(measured.groups, Beat(measured.at, self._settings.interval_ms, measured.source))
        parts.alerting.evaluate(measured)
        return render(
            measured,
            parts.alert_log.book.alerts.values(),
            self._deliveries.outcomes,
            series_max=self._settings.series_max,
            cluster_name=self._cluster_name,
        )


class _Parts:
    """The parts that need a cluster that responds. Raises ClientError."""

    def __init__(self, cluster: Cluster, settings: Settings, deliveries: Deliveries) -> None:
        self.measurer = Measurer(cluster, settings.thresholds.stopped * 1000)
        self.lag_log = LagLog(cluster)
        self.alert_log = AlertLog(cluster)
        self.alerting = Alerting(self.alert_log, deliveries, settings.thresholds)
