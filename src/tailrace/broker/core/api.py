"""The contract between the broker and its API handlers: what a handler receives with a request, and may return."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.broker.core.clients import ClientConnection
from tailrace.protocol.messages import ApiKey

FRAME_BYTES_MAX = 8 << 20  # of a request other than Produce: a Fetch of 50,000 partitions takes half of it
ELEMENTS_MAX = 20_000  # topics, partitions, configs … in one request: processed in a few dozen milliseconds


class Endpoint(NamedTuple):
    """The address at which clients reach this broker, as in Metadata responses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Call(NamedTuple):
    """The context of one request: version, client and time."""

    version: int
    client_id: str | None
    endpoint: Endpoint
    now_ms: int  # wall clock
    steady_ms: int = 0  # a monotonic clock, which stops while the process is suspended
    client_host: str = ""
    connection: ClientConnection | None = None  # None: unknown


class Silence:
    """The result of a Produce with acks=0: no response. If the Produce failed, the connection is closed, as that is the
    only way to report an error. `pause_ms` is for how long the connection is not read, to slow the client down.
    """

    __slots__ = ("close", "pause_ms")

    def __init__(self, *, close: bool = False, pause_ms: int = 0) -> None:
        self.close = close
        self.pause_ms = pause_ms


# (request, call, broker) -> its response, a DelayedResponse of it, or Silence
Handler = Callable[[Any, Call, Any], Any]


class Api(NamedTuple):
    """One API key and its handler. Each module in `apis/` has one; together they are the supported APIs."""

    key: ApiKey
    handle: Handler
    frame_bytes_max: int = FRAME_BYTES_MAX
    elements_max: int = ELEMENTS_MAX
