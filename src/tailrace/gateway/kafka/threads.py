"""Runs blocking calls of the client in a few threads, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Busy(Exception):
    """Too many calls wait for a thread."""


class Threads:
    """Used from the loop's thread alone. A call that the caller does not wait for any more runs to its end."""

    def __init__(self, name: str, count: int, waiting_max: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._calls_max = count + waiting_max
        self.calls = 0  # that run, or wait for a thread

    async def run(self, call: Callable[[], T]) -> T:
        """Returns what the call returns. Raises Busy, with nothing done."""
        if self.calls >= self._calls_max:
            raise Busy
        self.calls += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: "asyncio.Future[T]") -> None:
        self.calls -= 1
        if not future.cancelled():
            future.exception()  # the caller may be gone, and not look

    def close(self) -> None:
        """Waits for calls that run; those that wait for a thread are cancelled."""
        self._executor.shutdown(cancel_futures=True)
