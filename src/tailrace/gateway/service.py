"""The gateway put together: an app, its clients of the cluster, and the server that runs it on listening sockets."""

import asyncio
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tailrace.gateway.description import routes_about
from tailrace.gateway.errors import problem_of
from tailrace.gateway.groups import Groups
from tailrace.gateway.health import Health
from tailrace.gateway.http.app import app_of
from tailrace.gateway.http.bodies import Bodies
from tailrace.gateway.http.connection import HEAD_BYTES_MAX, Limits
from tailrace.gateway.http.endpoints import routes_of
from tailrace.gateway.http.server import HttpServer
from tailrace.gateway.http.waits import Waits
from tailrace.gateway.idempotency.keys import Keys
from tailrace.gateway.kafka.kafka import Kafka
from tailrace.gateway.metrics import Metrics
from tailrace.gateway.queues.queues import Queues
from tailrace.gateway.queues.verbs import QueueVerbs
from tailrace.gateway.settings import Settings
from tailrace.gateway.topics.catalog import Catalog
from tailrace.gateway.topics.consume import Consuming
from tailrace.gateway.topics.produce import Producing
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
        self.kafka = Kafka(properties)
        self.keys = Keys(properties, settings.idempotency_keys, settings.idempotency_ms)
        self.queues = Queues(self.kafka)
        self._waits = Waits(settings.waiting_max)
        self._health = Health(self.kafka.cluster, self.metrics)
        bodies = Bodies(settings.body_bytes_max)
        self._producing = Producing(self.kafka, self.keys, bodies)
        self.endpoints = [
            self._producing.endpoint(),
            Consuming(self.kafka, self._waits).endpoint(),
            *Catalog(self.kafka).endpoints(),
            *Groups(self.kafka).endpoints(),
            *QueueVerbs(self.kafka, self.queues, self._waits, bodies).endpoints(),
        ]
        app = app_of(
            [
                *routes_of(self.endpoints, problem_of),
                *routes_about(self.endpoints, has_token=access.token is not None),
                *self._health.routes(),
            ],
            self.metrics,
            AllowedHosts(access.host, settings.hosts),
            access.token,
            access_log=settings.access_log,
        )
        connections = settings.waiting_max + FURTHER_CONNECTIONS
        allow_descriptors(connections + DESCRIPTORS)
        self._server = HttpServer(app, Limits(connections, HEAD_BYTES_MAX + CHUNKED_OVERHEAD * settings.body_bytes_max))
        for name, text, value in (
            ("connections", "Open connections of HTTP clients.", lambda: self._server.connections),
            ("waiting", "HTTP requests that wait for messages.", lambda: self._waits.waiting),
            ("idempotency_keys", "Values of Idempotency-Key that are remembered.", lambda: self.keys.store.keys),
            ("queues", "Queues that are open.", lambda: self.queues.open),
            ("leases", "Messages that are leased.", lambda: self.queues.leases),
            ("bodies_bytes", "Memory that is reserved for bodies of HTTP requests.", lambda: bodies.held),
        ):
            self.metrics.gauge(f"tailrace_http_{name}", text, value)

    async def run(
        self, sockets: Sequence[socket.socket], stop: asyncio.Event, show: Callable[[str], None] | None = None
    ) -> None:
        """Serves until `stop` is set. `show` is given each new page of metrics."""
        showing = asyncio.ensure_future(self._show(show)) if show is not None else None
        self.keys.start()
        try:
            await self._server.serve(sockets, stop, self._waits.stop)
        finally:
            if showing is not None:
                showing.cancel()
            self._health.close()
            self._producing.close()
            self.queues.close()
            self.keys.close()
            self.kafka.close()

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
