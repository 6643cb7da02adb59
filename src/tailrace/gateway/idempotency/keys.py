"""What routes use: writes a request with a key, once however often it comes."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping

from tailrace.client.errors import ClientError, GaveUp
from tailrace.client.options import Isolation
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.idempotency.store import Answered, Keyed, Store
from tailrace.gateway.kafka.batches import BATCH_BYTES, size_of
from tailrace.gateway.kafka.connection import connect
from tailrace.gateway.kafka.threads import Busy, Threads
from tailrace.util import tracebacks

logger = logging.getLogger("tailrace.gateway")

WAITING_MAX = 1000
TOGETHER_MAX = 500  # requests in one transaction
REST_S = 3.0  # for a topic that takes no messages, so that those of other topics do not wait for it again
IMPATIENT = {"default.api.timeout.ms": "2000", "retry.backoff.ms": "20"}
WARM_UP_PAUSE_S = 2.0


class Keys:
    """Used from the loop's thread alone."""

    def __init__(self, properties: Mapping[str, str], keys_max: int, ms: int) -> None:
        """Raises BadProperties."""
        self._cluster = connect({**properties, **IMPATIENT}, Isolation.READ_COMMITTED)
        self.store = Store(self._cluster, keys_max, ms)
        self._threads = Threads("keys", 1, 1)
        self._in_progress: dict[str, str] = {}  # fingerprints by key
        self._waiting: deque[_Waiting] = deque()
        self._resting: dict[str, float] = {}  # topics that take no messages, and until when
        self._task: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Reads the keys of a gateway before this one, in the background."""
        self._warming = asyncio.create_task(self._warm_up())

    def close(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
        self._threads.close()
        self._cluster.close()

    async def write(self, request: Keyed) -> Answered:
        """Writes the request, or returns what was written for its key before. Raises Problem and ClientError: then
        nothing of it was written, or that is unknown, and the same request may be sent again.
        """
        in_progress = self._in_progress.get(request.key)
        if in_progress is not None:
            _check_same(in_progress, request)
            raise Problem("in-progress", "the first request with this Idempotency-Key has not been answered yet")
        self._check_takes(request.topic)
        if len(self._waiting) >= WAITING_MAX:
            raise Busy
        self._in_progress[request.key] = request.fingerprint
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._handle_all())
        answered = await asyncio.shield(waiting.answered)
        _check_same(answered.request.request, request)
        return answered

    def _check_takes(self, topic: str) -> None:
        if (until := self._resting.get(topic)) is not None:
            if time.monotonic() < until:
                raise Problem("unavailable", f"topic {topic} takes no messages at present; try again in a while")
            del self._resting[topic]

    async def _handle_all(self) -> None:
        try:
            while self._waiting:
                await self._handle(self._next())
        finally:
            self._task = None

    def _next(self) -> "list[_Waiting]":
        """Returns the requests of the next transaction."""
        found = [self._waiting.popleft()]
        size = found[0].size
        while self._waiting and len(found) < TOGETHER_MAX and (size := size + self._waiting[0].size) <= BATCH_BYTES:
            found.append(self._waiting.popleft())
        return found

    async def _handle(self, together: "list[_Waiting]") -> None:
        requests = [one.request for one in together]
        try:
            outcomes = await self._threads.run(lambda: self.store.handle(requests))
        except Exception as error:
            for one in together:
                self._resolve(one, error)
            raise
        for one, outcome in zip(together, outcomes, strict=True):
            if isinstance(outcome, Answered):
                self._resolve(one, outcome)
                continue
            if outcome.concerns_topic and isinstance(outcome.error, GaveUp):
                self._resting[one.request.topic] = time.monotonic() + REST_S
            self._resolve(one, outcome.error)

    def _resolve(self, one: "_Waiting", result: Answered | Exception) -> None:
        del self._in_progress[one.request.key]
        if isinstance(result, Exception):
            if isinstance(result, ClientError):  # that of another one is for the log
                tracebacks.forget(result)
            one.answered.set_exception(result)
            one.answered.exception()  # its client may be gone, and not look
        else:
            one.answered.set_result(result)

    async def _warm_up(self) -> None:
        while True:
            try:
                await self._threads.run(self.store.warm_up)
                return
            except (ClientError, Busy) as error:
                logger.debug("the keys of requests cannot be read yet: %s", error)
            await asyncio.sleep(WARM_UP_PAUSE_S)


class _Waiting:
    __slots__ = ("answered", "request", "size")

    def __init__(self, request: Keyed, answered: "asyncio.Future[Answered]") -> None:
        self.request = request
        self.answered = answered
        self.size = sum(map(size_of, request.records))


def _check_same(fingerprint: str, request: Keyed) -> None:
    if fingerprint != request.fingerprint:
        raise Problem("key-reused", "another request was sent with this Idempotency-Key")
