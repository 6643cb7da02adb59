"""A few threads for work that waits for a disk or a client. Each result is delivered on the loop.

A thread is started when all others are busy, up to a limit; so a broker without such work has none.
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
        """The number of submitted jobs that have not finished."""
        return self._under_way

    @property
    def are_busy(self) -> bool:
        """Whether work that is submitted now has to wait for a thread."""
        return self._under_way >= self._count

    @property
    def is_at_work(self) -> bool:
        """Whether a job has not finished, or a thread exists: a job that finished at once leaves one."""
        return bool(self._under_way or self._threads)

    def submit(self, work: Work, done: Work) -> None:
        """Runs `work` in a thread, and then `done` on the loop, even if `work` has failed."""
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
            except BaseException:  # a library that panics must not end the thread: `done` must be called
                logger.exception("a job failed unexpectedly")
            try:
                self._loop.call_soon_threadsafe(self._back, done)
            except RuntimeError:  # the loop was closed: no one needs the result any more
                return
            del item, work, done  # or their memory would be held until the next job

    def _back(self, done: Work) -> None:
        self._under_way -= 1
        done()

    def stop(self) -> None:
        """Waits until all submitted work is done, and ends the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
