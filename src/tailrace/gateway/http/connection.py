"""One HTTP connection with limits: uvicorn's, which has none for heads, slow clients and pipelined requests.

    head        HEAD_BYTES_MAX, within HEAD_S of its first byte, or of the connection
    body        `message_bytes` as it arrives, with chunk sizes and trailers, within MESSAGE_S, also where the app has
                answered before; the app has limits of its own (`bodies`)
    responses   a client that does not read one for WRITE_S is disconnected
    idle        KEEP_ALIVE_S between two requests

A connection beyond `connections` is closed at once.
"""

from asyncio import TimerHandle, Transport
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.gateway.http.problems import Problem

HEAD_BYTES_MAX = 64 << 10
HEAD_S = 10.0
MESSAGE_S = 40.0
WRITE_S = 30.0
KEEP_ALIVE_S = 60
PIPELINED_MAX = 16


class Limits(NamedTuple):
    connections: int
    message_bytes: int


class TooMuch(Exception):
    """The request exceeds a limit; it is answered with 400, and the connection closed."""


class BoundedConnection(HttpToolsProtocol):
    limits = Limits(connections=1000, message_bytes=1 << 20)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._taken = 0  # bytes of the head or of the body that is arriving
        self._in_head = True
        self._patience: TimerHandle | None = None  # for the head, or the body
        self._writing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._be_patient(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_patience()
        self._stop_writing_timer()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        if self._in_head and self._patience is None:
            self._be_patient(HEAD_S)
        super().data_received(data)
        if self._in_head and self._taken > HEAD_BYTES_MAX:
            self.send_400_response(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
            self._in_head = False
        elif self._taken > self.limits.message_bytes:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is no HTTP, or too large, and closes the connection."""
        response = Problem("bad-request", msg).response()
        head = "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in response.raw_headers)
        self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{head}connection: close\r\n\r\n".encode() + response.body)
        self.transport.close()

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise TooMuch("too many requests before the first response")
        self._in_head, self._taken = False, 0
        self._be_patient(MESSAGE_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._taken = True, 0
        self._end_patience()
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_writing_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size() and self._writing is None:  # the client does not read its end
            self._writing = self.loop.call_later(WRITE_S, self.transport.abort)

    def _be_patient(self, seconds: float) -> None:
        self._end_patience()
        self._patience = self.loop.call_later(seconds, self.transport.abort)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_writing_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


def connection_class(limits: Limits) -> type[BoundedConnection]:
    return type("LimitedConnection", (BoundedConnection,), {"limits": limits})
