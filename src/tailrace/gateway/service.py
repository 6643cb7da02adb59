"""The gateway put together: an app, its clients of the cluster, and the server that runs it on listening sockets."""

import asyncio
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.client.options import Isolation
from tailrace.gateway.health import Health
from tailrace.gateway.http.app import app_of
from tailrace.gateway.http.connection import HEAD_BYTES_MAX, Limits
from tailrace.gateway.http.server import HttpServer
from tailrace.gateway.kafka.connection import connect
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.settings import Settings
from tailrace.util.http_hosts import AllowedHosts

SHOW_S = 5.0
FURTHER_CONNECTIONS = 1000  # beside those whose requests wait for messages
DESCRIPTORS = 500  # for other purposes than connections of clients
CHUNKED_OVERHEAD = 8  # a body of one-byte chunks is so many times longer on the wire


class Access(NamedTuple):
    """Who may use the gateway: by the name of the host that it is bound to, and with a token; None for none."""

    host: str
    token: str | None = None


class Gateway:
    def __init__(self, properties: Mapping[str, str], settings: Settings, access: Access) -> None:
        """Raises BadProperties. Connects to no broker yet."""
        self.metrics = Metrics()
        self._cluster = connect(properties, Isolation.READ_COMMITTED)
        self._health = Health(self._cluster, self.metrics)
        self.app = app_of(
            self._health.routes(),
            self.metrics,
            AllowedHosts(access.host, settings.hosts),
            access.token,
            access_log=settings.access_log,
        )
        connections = settings.waiting_max + FURTHER_CONNECTIONS
        allow_descriptors(connections + DESCRIPTORS)
        self._server = HttpServer(
            self.app, Limits(connections, HEAD_BYTES_MAX + CHUNKED_OVERHEAD * settings.body_bytes_max)
        )
        self.metrics.gauge(
            "tailrace_http_connections", "Open connections of HTTP clients.", lambda: self._server.connections
        )

    async def run(
        self, sockets: Sequence[socket.socket], stop: asyncio.Event, show: Callable[[str], None] | None = None
    ) -> None:
        """Serves until `stop` is set. `show` is given each new page of metrics."""
        showing = asyncio.ensure_future(self._show(show)) if show is not None else None
        try:
            await self._server.serve(sockets, stop)
        finally:
            if showing is not None:
                showing.cancel()
            self._health.close()
            self._cluster.close()

    async def _show(self, show: Callable[[str], None]) -> None:
        shown = ""
        while True:
            if (page := self.metrics.page()) != shown:
                show(page)
                shown = page
            await asyncio.sleep(SHOW_S)


def allow_descriptors(count: int) -> None:
    """Raises this process's limit of open files to `count`, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
