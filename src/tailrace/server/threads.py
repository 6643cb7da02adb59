"""A few threads for work that waits for a disk or a client. Each result comes back on the loop.

A thread is started when all others are busy, up to a number; so a broker that has nothing to wait for has none.
"""

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import SimpleQueue

logger = logging.getLogger("tailrace.server")

Work = Callable[[], None]


class Workers:
    """Used from the loop's thread alone."""

    def __init__(self, loop: AbstractEventLoop, name: str, count: int) -> None:
        self._loop = loop
        self._name = name
        self._count = count
        self._queue: SimpleQueue[tuple[Work, Work] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    @property
    def under_way(self) -> int:
        """How much was submitted and has not come back."""
        return self._under_way

    @property
    def are_busy(self) -> bool:
        """Whether what is submitted now has to wait for a thread."""
        return self._under_way >= self._count

    @property
    def is_at_work(self) -> bool:
        """Whether something has not come back, or a thread is there for it: a job that came back at once leaves one."""
        return bool(self._under_way or self._threads)

    def submit(self, work: Work, done: Work) -> None:
        """`work` is run in a thread, and then `done` on the loop, also where `work` has failed."""
        self._under_way += 1
        if self._under_way > len(self._threads) < self._count:
            self._start_thread()
        self._queue.put((work, done))

    def _start_thread(self) -> None:
        name = f"tailrace-{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                work()
            except BaseException:  # a library that panics must not end the thread: `done` has to be called
                logger.exception("a job failed unexpectedly")
            try:
                self._loop.call_soon_threadsafe(self._back, done)
            except RuntimeError:  # the loop was closed: nothing waits for it any more
                return
            del item, work, done  # or all that they hold would stay until there is something else to do

    def _back(self, done: Work) -> None:
        self._under_way -= 1
        done()

    def stop(self) -> None:
        """Waits until all that was submitted has run, and ends the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
