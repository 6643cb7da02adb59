"""Serves three pages for monitoring: /metrics, /healthz, /readyz. Supports no more of HTTP than they need.

    /healthz    200 while the event loop runs
    /readyz     200 while the broker serves clients; 503 while it stops, and while logs are offline, lost or cannot be
                opened; the body names them

A request that names a host which is not known here is refused (`util/http_hosts`).
"""

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tailrace.broker.configs.keys import parts_of
from tailrace.broker.core.losses import offline_logs
from tailrace.server.net.listener import bind
from tailrace.util.http_hosts import AllowedHosts, refusal

if TYPE_CHECKING:
    from tailrace.server.node import Node

logger = logging.getLogger("tailrace.server")

REQUEST_BYTES_MAX = 8 << 10
CONNECTIONS_MAX = 100
TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.address: tuple[str, int] | None = None
        self._hosts = AllowedHosts("")

    async def start(self, host: str, port: int) -> None:
        """Raises OSError if the address is in use."""
        hosts = self._node.configs.text("tailrace.http.hosts")
        self._hosts = AllowedHosts(host, parts_of(hosts))
        with ExitStack() as undo:
            first = bind(host, port, undo)[0]  # one address is enough for monitoring
            self.address = first.getsockname()[:2]
            self._server = await asyncio.start_server(self._serve, sock=first.dup(), limit=REQUEST_BYTES_MAX)

    async def stop(self) -> None:
        """Stops serving, and aborts the connections that are being served."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections.add(writer)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                local = str(writer.get_extra_info("sockname")[0])
                writer.writelines(self._answer(head, local))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.transport.abort()  # a bad request, or a client that does not read, gets no response
        finally:
            self._connections.discard(writer)

    def _answer(self, head: bytes, local: str) -> list[bytes]:
        line, *fields = head.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(405, b"only GET is supported\n", with_body=True)
        host = _host_of(fields)
        if not self._hosts.allows(host, local):
            return _response(403, f"{refusal(host)}\n".encode(), with_body=True)
        if path == "/metrics":
            return _response(200, self._node.metrics.page(), _METRICS, with_body=method == "GET")
        status, text = self._page(path)
        return _response(status, text.encode(), with_body=method == "GET")

    def _page(self, path: str) -> tuple[int, str]:
        if path == "/healthz":
            return 200, "ok\n"
        if path == "/readyz":
            return self._readiness()
        return 404, "not found. There are /metrics, /healthz and /readyz\n"

    def _readiness(self) -> tuple[int, str]:
        if self._node.is_stopping:
            return 503, "stopping\n"
        unavailable = [f"{error}\n" for error in self._node.directory.unavailable.values()]
        unavailable += [f"{name} is offline: {error}\n" for name, error in offline_logs(self._node.directory).items()]
        if not unavailable:
            return 200, "ready\n"
        if len(unavailable) > _UNAVAILABLE_LINES_MAX:
            unavailable[_UNAVAILABLE_LINES_MAX:] = [f"and {len(unavailable) - _UNAVAILABLE_LINES_MAX} more\n"]
        return 503, "".join(unavailable)


_UNAVAILABLE_LINES_MAX = 20
_REASONS = {200: "OK", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _host_of(fields: list[str]) -> str | None:
    """The value of `Host`; None where there is none, or more than one."""
    values = [value for name, _, value in (field.partition(":") for field in fields) if name.lower() == "host"]
    return values[0] if len(values) == 1 else None


def _response(status: int, body: bytes, kind: str = _TEXT, *, with_body: bool) -> list[bytes]:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return [head.encode(), body] if with_body else [head.encode()]
