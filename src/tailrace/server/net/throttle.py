"""Throttles clients that exceed their quotas: they are answered, told for how long to wait, and not read meanwhile.

Bytes that a producer sends count when they arrive, those that a consumer gets when they are answered, and of the loop's
time what a request took to be read and handled.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.broker.fetch.reads import records_bytes
from tailrace.broker.quotas.client_quotas import ANONYMOUS, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from tailrace.protocol.frame import RequestHeader
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.server.net.pending import ignore

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from tailrace.server.node import Node


class Throttle:
    """One connection's. `on_begin` is called when it begins, or goes on for longer, `on_end` when it ends."""

    __slots__ = ("_loop", "_meter", "_on_begin", "_on_end", "_timer", "_until", "quotas", "revision")

    def __init__(self, node: "Node", on_begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        self.quotas = node.broker.metadata.quotas  # where these have no values, no call is needed
        self.revision = 0  # of the quotas that it is throttled by
        self._loop = node.loop
        self._meter = node.broker.quotas
        self._on_begin = on_begin
        self._on_end = on_end
        self._timer: TimerHandle | None = None
        self._until = 0.0

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def charge_request(self, header: RequestHeader, seconds: float, size: int) -> None:
        """A request was handled, which took so many seconds of the loop."""
        self._charge(header, REQUEST_PERCENTAGE, 100 * seconds)
        if header.api_key == ApiKey.PRODUCE:
            self._charge(header, PRODUCER_BYTE_RATE, size)

    def charge_answer(self, header: RequestHeader, answer: Any) -> None:
        """Sets how long the client is throttled in the response, if it is. A time that it has already counts."""
        if isinstance(answer, FetchResponse):
            self._charge(header, CONSUMER_BYTE_RATE, records_bytes(answer))
        elif wait_ms := getattr(answer, "throttle_time_ms", 0):
            self._begin(wait_ms)
        if self._timer is not None and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = round(1000 * max(0.0, self._until - self._loop.time()))

    def _charge(self, header: RequestHeader, key: str, amount: float) -> None:
        wait_ms = self._meter.charge(key, ANONYMOUS, header.client_id or "", amount, self._loop.time())
        if wait_ms:
            self._begin(wait_ms)

    def _begin(self, wait_ms: int) -> None:
        """For no less time than it is throttled already."""
        until = self._loop.time() + wait_ms / 1000
        if self._timer is None or self._until < until:
            self.cancel()
            self._until = until
            self._timer = self._loop.call_at(until, self.end)
            self.revision = self.quotas.revision
            self._on_begin()

    def end(self) -> None:
        """The time is over, or the quotas are others."""
        self.cancel()
        self._on_end()

    def close(self) -> None:
        """Ends it, and lets go of the connection, which owns this."""
        self.cancel()
        self._on_begin = self._on_end = ignore

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
