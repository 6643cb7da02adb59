"""A proxy that loses things: a client that gets no answer cannot know whether its request was done, and tries again.

It reads the frames that pass (a length, then the number of the API), so that it loses what a test is about and counts
what a client asks. A lost answer is one that the broker gave: what the client takes for a failure has been done.
"""

import contextlib
import enum
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable

from compat.brokers import HOST, free_port

PRODUCE, FETCH = 0, 1


class Loss(enum.Enum):
    REQUEST = enum.auto()  # it never reaches the broker
    ANSWER = enum.auto()  # it reached the broker, which has answered


class LosingProxy:
    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, free_port()))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port = 0
        self.on_loss: Callable[[], object] = lambda: None  # called before the line is cut
        self.requests: Counter[int] = Counter()  # by number of API
        self.lost: list[Loss] = []
        self._losses: deque[Loss | None] = deque()
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._acceptor = threading.Thread(target=self._accept, name="proxy")
        self._acceptor.start()

    def lose(self, losses: Iterable[Loss | None]) -> None:
        """What happens to each of the next Produce requests, whoever sends it; None passes. Losing cuts the line."""
        self._losses.extend(losses)

    def next_loss(self, api: int) -> Loss | None:
        with self._lock:
            self.requests[api] += 1
            loss = self._losses.popleft() if api == PRODUCE and self._losses else None
            if loss:
                self.lost.append(loss)
            return loss

    def cut_all(self) -> None:
        """Cuts all connections there are; clients may connect again."""
        for connection in list(self._connections):
            connection.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((HOST, self.broker_port))
            except OSError:
                client.close()
                continue
            connection = _Connection(self, client, broker)
            self._connections.add(connection)
            connection.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for connection in self._connections:
            connection.cut()
            connection.join()


class _Connection:
    """Two threads, one for each direction; whichever finds an end cuts the line for both."""

    def __init__(self, proxy: LosingProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._answers: deque[Loss | None] = deque()
        self._threads = [threading.Thread(target=self._until_cut, args=(way,)) for way in (self._ask, self._answer)]

    def start(self) -> None:
        for line in (self._client, self._broker):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for thread in self._threads:
            thread.start()

    def _until_cut(self, way: Callable[[], bool]) -> None:
        with contextlib.suppress(OSError):
            while way():
                pass
        self.cut()

    def _ask(self) -> bool:
        if not (frame := _read_frame(self._client)):
            return False
        loss = self._proxy.next_loss(struct.unpack_from(">h", frame, 4)[0])
        if loss is Loss.REQUEST:
            self._proxy.on_loss()
            return False
        self._answers.append(loss)
        self._broker.sendall(frame)
        return True

    def _answer(self) -> bool:
        if not (frame := _read_frame(self._broker)):
            return False
        if self._answers.popleft():
            self._proxy.on_loss()
            return False
        self._client.sendall(frame)
        return True

    def cut(self) -> None:
        for line in (self._client, self._broker):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._broker.close()


def _read_frame(line: socket.socket) -> bytes:
    """With its length before it; empty at the end."""
    length = _read(line, 4)
    body = _read(line, *struct.unpack(">i", length)) if length else b""
    return length + body if body else b""


def _read(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (piece := line.recv(size - len(data))):
            return b""
        data += piece
    return bytes(data)
