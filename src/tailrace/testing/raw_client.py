"""A Kafka client of bare sockets: requests of the protocol, whole frames, and any other bytes.

    with RawClient(broker.address) as client:
        response = client.ask(MetadataRequest(topics=None), 12)

`FrameConnection` sends and receives frames: a length of four bytes, then so many bytes. `RawClient` adds requests and
responses, which must come in the order of the requests.
"""

import socket
import struct
from collections import deque
from types import TracebackType
from typing import Any, Self

from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.message import specification_of
from tailrace.protocol.messages import RESPONSES

LENGTH = struct.Struct(">i")
_CHUNK_BYTES = 1 << 20


class FrameConnection:
    """A TCP connection on which frames are sent and received."""

    def __init__(
        self, address: tuple[str, int], *, timeout_s: float | None = 20, receive_buffer: int | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if receive_buffer is not None:  # before connecting: the window is agreed on then
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.socket.settimeout(timeout_s)
            self.socket.connect(address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes as they are: the frame has its length in front."""
        self.socket.sendall(frame)

    def receive_frame(self) -> bytes:
        """The next frame, without its length. Raises ConnectionError where the connection ends before it does."""
        (length,) = LENGTH.unpack(self.receive_bytes(LENGTH.size))
        return self.receive_bytes(length)

    def receive_bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            received = self.socket.recv(min(count - len(data), _CHUNK_BYTES))
            if not received:
                raise ConnectionError("the broker has closed the connection")
            data += received
        return bytes(data)

    def exchange(self, frame: bytes) -> bytes:
        """Sends a frame, and returns the next one that is received."""
        self.send_frame(frame)
        return self.receive_frame()


class RawClient(FrameConnection):
    """Sends requests, any number ahead of their responses, and reads the responses one by one."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        client_id: str = "raw",
        timeout_s: float | None = 20,
        receive_buffer: int | None = None,
    ) -> None:
        super().__init__(address, timeout_s=timeout_s, receive_buffer=receive_buffer)
        self._client_id = client_id
        self._last_id = 0
        self._sent: deque[tuple[int, type[Any], int]] = deque()

    def frame(self, request: Any, version: int) -> bytes:
        """The bytes of a request. Its response is expected in its turn, as if the request had been sent."""
        self._last_id += 1
        key = specification_of(type(request)).key
        assert key is not None, f"{type(request).__name__} is no request"
        self._sent.append((self._last_id, RESPONSES[key], version))
        return encode_request(request, version, self._last_id, self._client_id)

    def send(self, request: Any, version: int) -> None:
        self.send_frame(self.frame(request, version))

    def send_without_answer(self, request: Any, version: int) -> None:
        """Sends a request that gets no response: Produce with `acks=0`."""
        self.send(request, version)
        self._sent.pop()

    def receive(self) -> Any:
        """The response to the first request that has none yet."""
        expected, response, version = self._sent.popleft()
        correlation_id, answer = decode_response(response, version, self.receive_frame())
        assert correlation_id == expected, f"response {correlation_id} came where {expected} was expected"
        return answer

    def receive_unread(self) -> bytes:
        """The bytes of that response, not decoded."""
        self._sent.popleft()
        return self.receive_frame()

    def ask(self, request: Any, version: int) -> Any:
        """Sends a request, and returns its response."""
        self.send(request, version)
        return self.receive()
