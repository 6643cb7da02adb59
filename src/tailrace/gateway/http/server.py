"""Serves an ASGI app on listening sockets, by uvicorn, until an event is set."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import ASGIApp
from uvicorn import Config, Server

from tailrace.gateway.http.connection import KEEP_ALIVE_S, Limits, connection_class

BACKLOG = 2048
STOP_S = 5  # for responses that are being sent

Result = TypeVar("Result")


class HttpServer:
    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # a client's mistake is no event of ours
        self._server = _QuietServer(
            Config(
                app,
                http=connection_class(limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections)

    async def serve(
        self, sockets: Sequence[socket.socket], stop: asyncio.Event, stopping: Callable[[], None] = lambda: None
    ) -> None:
        """Serves until `stop` is set; then calls `stopping`, and finishes the responses that are under way."""
        waiting = asyncio.ensure_future(stop.wait())
        serving = asyncio.ensure_future(self._server.serve(list(sockets)))
        try:
            await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping()
            self._server.should_exit = True
            await serving


class _QuietServer(Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves signals to the process."""
        yield


def run_on_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs it on uvloop, or on asyncio's own loop if uvloop is not installed."""
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
