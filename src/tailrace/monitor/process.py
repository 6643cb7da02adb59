"""The monitor as a child process of the broker: learns port and token on stdin, and writes metrics to stdout."""

import sys
import threading

from tailrace.monitor.alerts.settings import BadSetting, settings_from
from tailrace.monitor.service import Service
from tailrace.monitor.sources.connection import connect
from tailrace.util.broker_child import begin, properties_of, show


def main() -> None:
    greeting = begin("monitor")
    try:
        settings = settings_from(greeting["configs"])
    except BadSetting as error:
        sys.exit(f"the monitor cannot start: {error}")
    Service(connect(properties_of(greeting)), settings, "tailrace").run(threading.Event(), show)
