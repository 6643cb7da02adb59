"""`tailrace`, with another kind of flush: what a test of power cuts must find out, and what helps it to.

serve_with_other_sync.py none serve …     flushes do nothing
serve_with_other_sync.py slow serve …     they take long to begin: most cuts come between a write and its flush
serve_with_other_sync.py early serve …    so they do, and who waits for one is told at once that it is done
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SECONDS = 0.02


def slow(sync: Callable[..., Any]) -> Callable[..., Any]:
    def wait_and_sync(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # a start is slow enough
            time.sleep(SECONDS)
        return sync(*arguments)

    return wait_and_sync


def tell_early() -> None:
    from tailrace.log.flush.queue import FlushQueue

    when_flushed = FlushQueue.when_flushed

    def say_done(self: FlushQueue, log: Any, offset: int, notify: Callable[[None], object]) -> None:
        when_flushed(self, log, offset, lambda error: None)
        notify(None)

    FlushQueue.when_flushed = say_done  # type: ignore[method-assign,assignment]


def main(kind: str) -> None:
    write = os.pwritev
    if kind == "none":
        os.fsync = os.fdatasync = lambda descriptor: None  # type: ignore[assignment]
        os.pwritev = lambda descriptor, buffers, position, flags=0: write(descriptor, buffers, position)
    else:
        os.fsync, os.fdatasync = slow(os.fsync), slow(os.fdatasync)
        os.pwritev = slow(write)  # into the journal: which is slow then, so that threads do it
    if kind == "early":
        tell_early()

    from tailrace.cli.main import main
    from tailrace.server.flusher import linux_aio as syncing

    syncing._CALLS.clear()  # or the system would sync what is large, honestly and at once
    sys.argv[0] = "tailrace"
    main()


if __name__ == "__main__":
    main(sys.argv.pop(1))
