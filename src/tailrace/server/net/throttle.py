"""What a client's quotas make of its connection: it is answered, told for how long it is muted, and not read meanwhile.

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


class Muting:
    """One connection's. `on_muted` and `on_over` are called when it begins, or goes on for longer, and when it ends."""

    __slots__ = ("_loop", "_meter", "_on_muted", "_on_over", "_timer", "_until", "quotas", "revision")

    def __init__(self, node: "Node", on_muted: Callable[[], None], on_over: Callable[[], None]) -> None:
        self.quotas = node.broker.metadata.quotas  # where these have no values, nobody needs to call us
        self.revision = 0  # of the quotas that have muted it
        self._loop = node.loop
        self._meter = node.broker.quotas
        self._on_muted = on_muted
        self._on_over = on_over
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
        """Afterwards the answer says for how long the client is muted, if it is. One that says so already means it."""
        if isinstance(answer, FetchResponse):
            self._charge(header, CONSUMER_BYTE_RATE, records_bytes(answer))
        elif wait_ms := getattr(answer, "throttle_time_ms", 0):
            self._mute(wait_ms)
        if self._timer is not None and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = round(1000 * max(0.0, self._until - self._loop.time()))

    def _charge(self, header: RequestHeader, key: str, amount: float) -> None:
        wait_ms = self._meter.charge(key, ANONYMOUS, header.client_id or "", amount, self._loop.time())
        if wait_ms:
            self._mute(wait_ms)

    def _mute(self, wait_ms: int) -> None:
        """No less than it is muted already."""
        until = self._loop.time() + wait_ms / 1000
        if self._timer is None or self._until < until:
            self.cancel()
            self._until = until
            self._timer = self._loop.call_at(until, self.end)
            self.revision = self.quotas.revision
            self._on_muted()

    def end(self) -> None:
        """The time is over, or the quotas are others."""
        self.cancel()
        self._on_over()

    def close(self) -> None:
        """Ends it, and lets go of the connection, which owns this."""
        self.cancel()
        self._on_muted = self._on_over = ignore

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
