"""Requests that wait: bounded in number, and ended by their deadline, by their client, or by a stop of the gateway."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from tailrace.gateway.http.bodies import Gone
from tailrace.gateway.http.problems import Problem


class Waits:
    """Used from the loop's thread alone."""

    def __init__(self, most: int) -> None:
        self.waiting = 0
        self._most = most
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ends all waits, now and later."""
        self._stop.set()

    @contextmanager
    def begin(self, request: Request, seconds: float) -> Iterator["Wait"]:
        """Raises Problem if too many requests wait."""
        if self.waiting >= self._most:
            raise Problem("too-many-requests", f"{self._most} requests wait for messages (tailrace.http.waiting.max)")
        self.waiting += 1
        wait = Wait(request, self._stop, seconds)
        try:
            yield wait
        finally:
            self.waiting -= 1
            wait.close()


class Wait:
    """One request that waits, for as long as its client is there."""

    def __init__(self, request: Request, stop: asyncio.Event, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._stop = stop
        self._gone = asyncio.ensure_future(_disconnected(request))
        self._stopped = asyncio.ensure_future(stop.wait())

    @property
    def is_over(self) -> bool:
        return self._stop.is_set() or self._loop.time() >= self._deadline

    async def until(self, event: Callable[[], Awaitable[None]]) -> None:
        """Returns after the event, and at the end of the wait. Raises Gone when the client disconnects."""
        happened = asyncio.ensure_future(event())
        try:
            await asyncio.wait(
                (happened, self._gone, self._stopped),
                timeout=max(0.0, self._deadline - self._loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if happened.done():
                happened.result()
            elif self._gone.done():
                raise Gone
        finally:
            happened.cancel()

    def close(self) -> None:
        self._gone.cancel()
        self._stopped.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
