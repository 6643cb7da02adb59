"""A socket, plain or TLS, that sends and receives frames until a deadline.

Every error closes the socket, and is raised as a ClientError. A forked process does not use an inherited socket: two
processes that read from one socket would each get half of the responses.
"""

import contextlib
import os
import select
import socket
import ssl
import struct
import time

from tailrace.client.errors import BadAnswer, ClientError, ConnectionLost, TlsFailed
from tailrace.client.net.tls import secure
from tailrace.client.options import Address, ClientOptions

FRAME_BYTES_MAX = 1 << 30  # a batch may be as large as its topic allows, whatever the fetch size
FIRST_BYTES = 16 << 20  # allocated at once for a large frame; more only as bytes arrive
_LENGTH = struct.Struct(">i")
_TLS_ALERT = b"\x15\x03"


class Stream:
    def __init__(self, options: ClientOptions, address: Address, deadline: float) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self._pid = os.getpid()
        self._socket = self._connect(options, address, deadline)

    def _connect(self, options: ClientOptions, address: Address, deadline: float) -> socket.socket:
        timeout = min(options.connect_timeout_s, max(0.001, deadline - time.monotonic()))
        try:
            plain = socket.create_connection(address, timeout)
        except OSError as error:
            raise ConnectionLost(self.name, f"cannot connect: {error.strerror or error}") from error
        except (ValueError, OverflowError) as error:  # a broker may advertise any text as host, and any number as port
            raise ConnectionLost(self.name, f"not a valid address: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return plain if options.tls is None else secure(plain, options.tls, address[0])
        except (ssl.SSLEOFError, ConnectionError, TimeoutError) as error:
            plain.close()
            raise ConnectionLost(self.name, f"closed during the TLS handshake: {error}") from error
        except ssl.SSLError as error:
            plain.close()
            raise TlsFailed(self.name, str(error)) from error
        except BaseException:
            plain.close()
            raise

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def lost(self, why: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(self.name, why)

    def bad(self, why: str) -> BadAnswer:
        self.close()
        return BadAnswer(self.name, why)

    def is_silent(self) -> bool:
        """Whether it is open with nothing to read, as it should be while no response is due."""
        if self.is_closed or self._pid != os.getpid():
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        self.close()
        return False

    def has_arrived(self) -> bool:
        """Whether there are bytes, or the end of the stream, to read."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, data: bytes, deadline: float) -> None:
        try:
            self._until(deadline)
            self._socket.sendall(data)
        except OSError as error:
            raise self._failed(error, "sending") from error

    def receive_frame(self, deadline: float) -> memoryview:
        """Receives the next frame, without its length."""
        prefix = self._receive(4, deadline)
        (length,) = _LENGTH.unpack(prefix)
        if bytes(prefix[:2]) == _TLS_ALERT:
            raise self.bad("it uses TLS, but security.protocol does not")
        if not 4 <= length <= FRAME_BYTES_MAX:
            raise self.bad(f"a response of {length} bytes")
        return memoryview(self._receive(length, deadline))

    def _receive(self, count: int, deadline: float) -> bytearray:
        data = bytearray(min(count, FIRST_BYTES))
        have = 0
        try:
            while have < count:
                if have == len(data):
                    data += bytes(min(count - have, have))
                with memoryview(data) as view:
                    self._until(deadline)
                    received = self._socket.recv_into(view[have:])
                if not received:
                    raise self.lost("closed by the broker")
                have += received
        except OSError as error:
            raise self._failed(error, "waiting for a response") from error
        return data

    def _until(self, deadline: float) -> None:
        if self._pid != os.getpid():
            raise self.lost("the connection belongs to the parent process")  # our copy is closed
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))

    def _failed(self, error: OSError, doing: str) -> ClientError:
        if isinstance(error, TimeoutError):
            return self.lost(f"no response in time while {doing}")
        return self.lost(f"{error.strerror or error} while {doing}")
