"""The monitor by itself, beside any Kafka: its settings from a file, and its metrics over HTTP."""

import logging as standard_logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tailrace.facts.alerts import AlertKey
from tailrace.monitor.alerts.activity import Activity
from tailrace.monitor.alerts.rules import observe
from tailrace.monitor.alerts.settings import BadSetting, Settings, settings_from
from tailrace.monitor.figures.report import rfc3339, rows_of
from tailrace.monitor.measurer import Measurer
from tailrace.monitor.service import Service
from tailrace.monitor.sources.connection import connect
from tailrace.util import logging, shutdown

logger = standard_logging.getLogger("tailrace.monitor")

SAMPLE_S = 2.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_POLL_S = 0.2
_REQUEST_S = 10


class BadConfig(Exception):
    """The file of configs cannot be used."""


def settings_of(configs: Mapping[str, str]) -> Settings:
    """Raises BadConfig."""
    try:
        return settings_from(configs)
    except BadSetting as error:
        raise BadConfig(str(error)) from None


class AloneMonitor:
    """The constructor raises BadProperties."""

    def __init__(self, properties: Mapping[str, str], settings: Settings) -> None:
        self._cluster = connect(properties)
        self._settings = settings
        self._name = properties["bootstrap.servers"]
        self._page = ""

    def __enter__(self) -> "AloneMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def once(self) -> dict[str, Any]:
        """Measures twice, a moment apart, for rates. Returns lag, and the rules that are broken. Raises ClientError."""
        measurer = Measurer(self._cluster, self._settings.thresholds.stopped * 1000, samples_only=True)
        measurer.measure()
        time.sleep(SAMPLE_S)
        measured = measurer.measure()
        found = observe(measured, self._settings.thresholds, Activity(), {})
        return {
            "at": rfc3339(measured.at),
            "source": measured.source,
            "groups": [row for group in measured.groups for row in rows_of(group, measured.at)],
            "alerts": [
                {**_named(one.key), "partition": one.partition, "value": one.value, "threshold": one.threshold,
                 "message": one.message}
                for one in found if one.is_broken
            ],
        }  # fmt: skip

    def run(self, host: str, port: int | None) -> None:
        """Runs until a signal. Raises OSError if the address for metrics is in use; no port is no metrics."""
        logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
        server = None if port is None else self._server(host, port)
        if server is not None:
            threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True).start()
            logger.info("metrics are at http://%s:%d/metrics", *server.server_address[:2])
        try:
            with shutdown.stopped_by_signals() as stop:
                Service(self._cluster, self._settings, self._name).run(stop, self._show)
        finally:
            if server is not None:
                server.shutdown()
                server.server_close()

    def _show(self, page: str) -> None:
        self._page = page

    def _server(self, host: str, port: int) -> ThreadingHTTPServer:
        monitor = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                is_found = self.path.partition("?")[0] == "/metrics"
                body = (monitor._page if is_found else "not found. There is /metrics\n").encode()
                self.send_response(200 if is_found else 404)
                self.send_header("Content-Type", _TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer((host, port), Handler)


def _named(key: AlertKey) -> dict[str, object]:
    return {"rule": key.rule, "group": key.group or None, "topic": key.topic or None}
