"""The contract between the broker and its API handlers: what a handler receives with a request, and may return."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.protocol.messages import ApiKey

FRAME_BYTES_MAX = 8 << 20  # of a request that is not a Produce: 50,000 partitions in a Fetch take half of it
ELEMENTS_MAX = 20_000  # topics, partitions, configs … in one request: what is worked off in a few dozen milliseconds


class Endpoint(NamedTuple):
    """Where a client reaches this broker: what it is told in Metadata."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Call(NamedTuple):
    """One request: who asks, how, and when."""

    version: int
    client_id: str | None
    endpoint: Endpoint
    now_ms: int  # wall clock
    steady_ms: int = 0  # a clock that never jumps, and stands while the broker is held up
    client_host: str = ""


class Silence:
    """The answer to a Produce that wants none. Where it failed the connection is closed: the only way to say so."""

    __slots__ = ("close",)

    def __init__(self, *, close: bool = False) -> None:
        self.close = close


# (request, call, broker) -> its response, a DelayedResponse of it, or Silence
Handler = Callable[[Any, Call, Any], Any]


class Api(NamedTuple):
    """One API key: each module in `apis/` has one, and together they are what we speak."""

    key: ApiKey
    handle: Handler
    frame_bytes_max: int = FRAME_BYTES_MAX
    elements_max: int = ELEMENTS_MAX
