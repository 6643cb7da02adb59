"""The monitor as a child process of the broker: learns port and token on stdin, and writes metrics to stdout.

The end of stdin is the end of the broker, however that ended: then the process ends at once.
"""

import json
import logging as standard_logging
import os
import signal
import sys
import threading
from contextlib import suppress

from tailrace.monitor.alerts.settings import BadSetting, settings_from
from tailrace.monitor.service import Service
from tailrace.monitor.sources.connection import connect
from tailrace.util import logging

logger = standard_logging.getLogger("tailrace.monitor")

USER = "tailrace-internal"
END_OF_PAGE = "# EOF\n"
NICENESS = 5  # clients of the broker come first


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these are sent to whole process groups
        signal.signal(number, signal.SIG_IGN)  # the broker ends this process
    with suppress(OSError):
        os.nice(NICENESS)
    logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    stdin = sys.stdin.buffer
    try:
        greeting = json.loads(stdin.readline())
    except ValueError:
        sys.exit("tailrace.monitor is started by `tailrace serve`; alone, it is `tailrace monitor`")
    threading.Thread(target=_end_with, args=(stdin.fileno(),), name="broker", daemon=True).start()
    try:
        settings = settings_from(greeting["configs"])
    except BadSetting as error:
        sys.exit(f"the monitor cannot start: {error}")
    cluster = connect(
        {
            "bootstrap.servers": f"127.0.0.1:{greeting['port']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": greeting["token"],
        }
    )
    Service(cluster, settings, "tailrace").run(threading.Event(), show)


def _end_with(stdin: int) -> None:
    """Reads the descriptor, not the file: an exit with an error would abort, as this thread has the file's lock."""
    with suppress(OSError):
        while os.read(stdin, 1):
            pass
    os._exit(0)


def show(page: str) -> None:
    try:
        sys.stdout.write(page + END_OF_PAGE)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)
