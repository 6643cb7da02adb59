"""A gateway in a thread of its own, on a free port.

with RunningGateway(broker.bootstrap) as gateway:
    httpx.get(f"{gateway.url}/v1/topics")
"""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from waits import until

from tailrace.gateway.http.server import run_on_loop
from tailrace.gateway.service import Access, Gateway
from tailrace.gateway.settings import settings_from
from tailrace.testing.broker_process import free_port

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


class GatewayProcess:
    """`tailrace gateway`, to be killed and started again on the same port."""

    def __init__(self, bootstrap: str, output: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._output = output
        self._options = ("-b", bootstrap, "--listen", f"127.0.0.1:{self.port}", *options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self._output.open("ab") as output:
            command = [sys.executable, "-m", "tailrace", "gateway", *self._options]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        until(self._is_up)

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._output.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
