"""A client of bare sockets: it says whole requests, parts of them, and what is none, and reads answers one by one.

with RawClient(node.address) as client:
    client.ask(ApiVersionsRequest(), 3)
    client.send(MetadataRequest(topics=None), 12)
    client.receive()
"""

import socket
import struct
from collections import deque
from types import TracebackType
from typing import Any

from brokers import a_batch, fetch_request, from_offset, only_partition, produce_request, values_of

from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.message import specification_of
from tailrace.protocol.messages import RESPONSES

NOW_AND_THEN_MS = 1_700_000_000_000


class RawClient:
    def __init__(self, address: tuple[str, int], *, timeout_s: float = 20, receive_buffer: int | None = None) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:  # before connecting: the window is agreed on then
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_id = 0
        self._sent: deque[tuple[int, type[Any], int]] = deque()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Goes away without a good-bye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # Requests and answers

    def frame(self, request: Any, version: int) -> bytes:
        """The bytes of a request, whose answer is then waited for like that of any other."""
        self._last_id += 1
        key = specification_of(type(request)).key
        assert key is not None
        self._sent.append((self._last_id, RESPONSES[key], version))
        return encode_request(request, version, self._last_id, "raw")

    def send(self, request: Any, version: int) -> None:
        self.socket.sendall(self.frame(request, version))

    def send_without_answer(self, request: Any, version: int) -> None:
        self.send(request, version)
        self._sent.pop()

    def receive(self) -> Any:
        """The answer to the first request that has none yet."""
        expected, response, version = self._sent.popleft()
        correlation_id, answer = decode_response(response, version, self.receive_frame())
        assert correlation_id == expected
        return answer

    def receive_unread(self) -> bytes:
        """The bytes of that answer, for those that are too long to be read."""
        self._sent.popleft()
        return self.receive_frame()

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    # Bytes

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self.receive_bytes(4))
        return self.receive_bytes(length)

    def receive_bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            received = self.socket.recv(min(count - len(data), 1 << 20))
            if not received:
                raise ConnectionError("the broker has closed the connection")
            data += received
        return bytes(data)

    def is_closed(self, timeout_s: float = 10) -> bool:
        """Whether the broker closes the connection, by then; what it says before is thrown away."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def has_nothing(self, for_s: float = 0.1) -> bool:
        """Whether no answer comes within that time."""
        timeout = self.socket.gettimeout()
        self.socket.settimeout(for_s)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(timeout)
        return False

    # What tests say again and again

    def produce(self, *values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **fields: Any) -> Any:
        return only_partition(self.ask(a_produce(*values, topic=topic, partition=partition, acks=acks, **fields), 12))

    def values(self, topic: str = "orders", partition: int = 0, offset: int = 0, **fields: Any) -> list[bytes]:
        request = fetch_request(from_offset(offset, partition, 64 << 20), topic=topic, **{"max_wait_ms": 0, **fields})
        return values_of(only_partition(self.ask(request, 12)))


def a_produce(*values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **fields: Any) -> Any:
    return produce_request(a_batch(*values, now_ms=NOW_AND_THEN_MS), topic, partition, acks, **fields)
