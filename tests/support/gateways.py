"""A gateway in a thread of its own, on a free port.

with RunningGateway(broker.bootstrap) as gateway:
    httpx.get(f"{gateway.url}/v1/topics")
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from tailrace.gateway.http.server import run_on_loop
from tailrace.gateway.service import Access, Gateway
from tailrace.gateway.settings import settings_from

Result = TypeVar("Result")

NOWHERE = "127.0.0.1:1"
TOKEN = "0123456789abcdef"
STOP_S = 20.0


class RunningGateway:
    def __init__(
        self,
        bootstrap: str = NOWHERE,
        configs: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.gateway = Gateway(
            {"bootstrap.servers": bootstrap}, settings_from(dict(configs or {})), Access(host, token)
        )
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.address: tuple[str, int] = self._socket.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self._thread = threading.Thread(target=lambda: run_on_loop(self._run()), name="gateway")
        self._started = threading.Event()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._started.set()
        await self.gateway.run([self._socket], self._stop)

    def on_loop(self, call: Callable[[], Result]) -> Result:
        async def run() -> Result:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(STOP_S)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(STOP_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_S)
        assert not self._thread.is_alive()
