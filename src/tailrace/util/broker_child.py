"""A child process of the broker (`server/children`): what it learns on stdin, and what it writes to stdout.

The end of stdin is the end of the broker, however that ended: then the process ends at once.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from tailrace.util import logging

USER = "tailrace-internal"
END_OF_PAGE = "# EOF\n"
NICENESS = 5  # clients of the broker come first


def begin(verb: str) -> dict[str, Any]:
    """Sets the process up, and returns what the broker tells it. Exits if no broker has started it: `verb` is what does
    the same alone.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these are sent to whole process groups
        signal.signal(number, signal.SIG_IGN)  # the broker ends this process
    with suppress(OSError):
        os.nice(NICENESS)
    logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    stdin = sys.stdin.buffer
    try:
        greeting: dict[str, Any] = json.loads(stdin.readline())
    except ValueError:
        sys.exit(f"tailrace.{verb} is started by `tailrace serve`; alone, it is `tailrace {verb}`")
    threading.Thread(target=_end_with, args=(stdin.fileno(),), name="broker", daemon=True).start()
    return greeting


def properties_of(greeting: dict[str, Any]) -> dict[str, str]:
    """Returns the properties of a client of that broker, by Kafka's names."""
    return {
        "bootstrap.servers": f"127.0.0.1:{greeting['port']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": greeting["token"],
    }


def show(page: str) -> None:
    """Hands a page of metrics to the broker."""
    try:
        sys.stdout.write(page + END_OF_PAGE)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def _end_with(stdin: int) -> None:
    """Reads the descriptor, not the file: an exit with an error would abort, as this thread has the file's lock."""
    with suppress(OSError):
        while os.read(stdin, 1):
            pass
    os._exit(0)
