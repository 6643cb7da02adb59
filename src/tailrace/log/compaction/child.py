"""The program of the child process that runs a compaction pass, so that the pass does not block the broker's event
loop.

    python -m tailrace.log.compaction.child     in the directory of the log

The first line on stdin is the specification of the pass. For each new segment the process writes one line to stdout and
waits for one line on stdin before it begins the next. When stdin is closed, because the broker stopped the pass or
died, the process exits at once, at any point; a later start removes what it leaves behind. It runs at low priority.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from queue import SimpleQueue

from tailrace.log.compaction.cleaner import clean
from tailrace.log.compaction.messages import PassFailed, PassMessage, PassResult, PassSpec, encode_message
from tailrace.log.disk.os_files import OperatingSystemFiles

NICENESS = 15
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Pace:
    """Limits the rate: sleeps while more bytes were moved than the elapsed time allows."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._moved = 0
        self._began = time.monotonic()

    def __call__(self, moved: int) -> None:
        if self._bytes_per_second:
            self._moved += moved
            ahead = self._moved / self._bytes_per_second - (time.monotonic() - self._began)
            if ahead > 0:
                time.sleep(ahead)


def _read_lines(lines: "SimpleQueue[str]") -> None:
    """Runs in a thread of its own, so that the end of stdin is noticed at any point of the pass."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(1)


def _messages(spec: PassSpec) -> Iterator[PassMessage]:
    """Yields the messages of the pass. An unexpected error ends it like any other failure, and is logged to stderr."""
    try:
        yield from clean(OperatingSystemFiles(64), spec, Pace(spec.settings.io_bytes_per_second))
    except Exception as error:  # noqa: BLE001 - reported to the broker
        traceback.print_exc()
        yield PassFailed(f"{type(error).__name__}: {error}")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent by a terminal: the broker decides when to stop
    os.nice(NICENESS)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    began = time.monotonic()
    spec = PassSpec.decode(lines.get())
    for message in _messages(spec):
        if isinstance(message, PassResult):
            message.seconds = time.monotonic() - began
            message.peak_memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        try:
            print(encode_message(message), flush=True)
        except BrokenPipeError:  # the broker died, and the end of stdin was not noticed yet
            os._exit(1)
        json.loads(lines.get())
    os._exit(0)  # the thread still blocks on stdin


if __name__ == "__main__":
    main()
