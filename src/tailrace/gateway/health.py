"""The pages for who watches the gateway: /healthz, /readyz and /metrics.

/healthz    200 while the event loop runs
/readyz     200 while a broker answers; else 503, with the reason
/metrics    the figures, in Prometheus' text format
"""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import ClientError
from tailrace.gateway.kafka.threads import Threads
from tailrace.gateway.metrics import Metrics

PROBE_S = 2.0
FRESH_S = 1.0
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._threads = Threads("health", 1, 0)
        self._probe: asyncio.Task[None] | None = None
        self._trouble: str | None = None
        self._probed_at = float("-inf")

    def routes(self) -> list[Route]:
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._show_metrics),
        ]

    def close(self) -> None:
        self._threads.close()

    async def _healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _: Request) -> Response:
        if time.monotonic() - self._probed_at > FRESH_S:
            if self._probe is None:
                self._probe = asyncio.create_task(self._look())
            try:
                async with asyncio.timeout(PROBE_S):
                    await asyncio.shield(self._probe)
            except TimeoutError:
                return PlainTextResponse("no broker answers\n", 503)
        return PlainTextResponse("ready\n") if self._trouble is None else PlainTextResponse(f"{self._trouble}\n", 503)

    async def _look(self) -> None:
        try:
            await self._threads.run(lambda: self._cluster.refresh([], self._cluster.retry("asking for brokers")))
            self._trouble = None
        except ClientError as error:
            self._trouble = str(error)
        finally:
            self._probed_at, self._probe = time.monotonic(), None

    async def _show_metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._metrics.page(), media_type=_METRICS)
