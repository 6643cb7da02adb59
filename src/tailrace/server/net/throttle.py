"""Throttles clients that exceed their quotas: the response says how long, and the client is not read meanwhile.

A Produce is also delayed for the sake of slow consumers (`broker/backlog/gate`). Its response has waited already, so
its client is read; only one that wants no responses (`acks=0`) is not.

Bytes of a producer count when they arrive, bytes for a consumer when its request is answered. Request time is the
loop's time for reading and handling a request.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.broker.fetch.reads import records_bytes
from tailrace.broker.quotas.client_quotas import ANONYMOUS, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from tailrace.protocol.frame import RequestHeader
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.protocol.messages.share_fetch import ShareFetchResponse
from tailrace.server.net.pending import ignore

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from tailrace.server.node import Node


class Throttle:
    """Throttles one connection. `on_begin` is called when throttling begins or is extended, `on_end` at its end."""

    __slots__ = ("_loop", "_meter", "_on_begin", "_on_end", "_timer", "_until", "quotas", "revision")

    def __init__(self, node: "Node", on_begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        self.quotas = node.broker.metadata.quotas  # if no quotas are set, no call is needed
        self.revision = 0  # of the quotas that throttle the client
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
        """Charges a request that took `seconds` of the loop."""
        self._charge(header, REQUEST_PERCENTAGE, 100 * seconds)
        if header.api_key == ApiKey.PRODUCE:
            self._charge(header, PRODUCER_BYTE_RATE, size)

    def charge_answer(self, header: RequestHeader, answer: Any) -> None:
        """Charges a response, and sets the remaining throttle time in it. A time that it already has is taken over."""
        if isinstance(answer, FetchResponse | ShareFetchResponse):
            self._charge(header, CONSUMER_BYTE_RATE, records_bytes(answer))
        wait_ms = getattr(answer, "throttle_time_ms", 0)
        if wait_ms and not isinstance(answer, ProduceResponse):  # a Produce has waited for its response already
            self.pause(wait_ms)
        if self._timer is not None and hasattr(answer, "throttle_time_ms"):
            left_ms = round(1000 * max(0.0, self._until - self._loop.time()))
            answer.throttle_time_ms = max(left_ms, wait_ms) if isinstance(answer, ProduceResponse) else left_ms

    def _charge(self, header: RequestHeader, key: str, amount: float) -> None:
        wait_ms = self._meter.charge(key, ANONYMOUS, header.client_id or "", amount, self._loop.time())
        if wait_ms:
            self.pause(wait_ms)

    def pause(self, wait_ms: int) -> None:
        """Throttles for `wait_ms`, or for the rest of the current throttle if that is longer."""
        until = self._loop.time() + wait_ms / 1000
        if self._timer is None or self._until < until:
            self.cancel()
            self._until = until
            self._timer = self._loop.call_at(until, self.end)
            self.revision = self.quotas.revision
            self._on_begin()

    def end(self) -> None:
        """Ends throttling: the time is over, or the quotas have changed."""
        self.cancel()
        self._on_end()

    def close(self) -> None:
        """Ends throttling, and drops the reference to the connection, which owns this."""
        self.cancel()
        self._on_begin = self._on_end = ignore

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
