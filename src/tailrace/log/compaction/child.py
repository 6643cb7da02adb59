"""The program of the child process that a compaction pass runs in, so that it costs the broker's loop nothing.

    python -m tailrace.log.compaction.child     in the directory of the log

It reads a line that says what to do, and writes a line for each new segment; the answer to that, another line, is its
leave to begin the next one. When its input ends, whoever started it is gone or wants no more: it ends at once, in
whatever it is, and a later start removes what it leaves. It takes the processor only when nobody else wants it.
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
from tailrace.log.compaction.messages import PassFailed, PassResult, PassSpec, Said, encode_said
from tailrace.log.disk.os_files import OperatingSystemFiles

NICENESS = 15
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Pace:
    """Sleeps where more was moved than may be in the time since it began."""

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
    """In a thread of its own, so that the end of the input is noticed in the middle of anything."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(1)


def _said(spec: PassSpec) -> Iterator[Said]:
    """What the pass says. A mistake of ours ends it as any other failure does, but for what it leaves on stderr."""
    try:
        yield from clean(OperatingSystemFiles(64), spec, Pace(spec.settings.io_bytes_per_second))
    except Exception as error:  # noqa: BLE001 - the broker is told, whatever it is
        traceback.print_exc()
        yield PassFailed(f"{type(error).__name__}: {error}")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the broker decides when to stop
    os.nice(NICENESS)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    began = time.monotonic()
    spec = PassSpec.decode(lines.get())
    for said in _said(spec):
        if isinstance(said, PassResult):
            said.seconds = time.monotonic() - began
            said.peak_memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        print(encode_said(said), flush=True)
        json.loads(lines.get())
    os._exit(0)  # the thread waits for a line that nobody will write


if __name__ == "__main__":
    main()
