"""A raw connection for hot loops: one system call for a small response, and no timeout of Python's."""

import socket
import struct
from typing import TypeVar

from tailrace.protocol.frame import decode_response, encode_request
from tailrace.testing.raw_client import LENGTH, FrameConnection

Response = TypeVar("Response")

_ROOM = 64 << 10  # more than most responses
_TIMEOUT = struct.pack("@ll", 60, 0)  # as the kernel's timeval


class RawConnection(FrameConnection):
    """One request at a time, with no client library in between, and as little of Python as can be: a small response
    takes one system call, as the kernel minds the time, too.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), timeout_s=None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
        self._behind = b""  # the last response, of what was received

    def ask(self, request: object, response: type[Response], version: int) -> Response:
        return decode_response(response, version, self.exchange(encode_request(request, version, 0, "bench")))[1]

    def receive_frame(self) -> bytes:
        data = self._behind or self._received()
        while len(data) < LENGTH.size:
            data += self._received()
        end = LENGTH.size + LENGTH.unpack_from(data)[0]
        if len(data) < end:
            data = self._rest_of(data, end)
        self._behind = data[end:]
        return data[LENGTH.size : end]

    def _received(self) -> bytes:
        data = self.socket.recv(_ROOM)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        return data

    def _rest_of(self, data: bytes, end: int) -> bytes:
        """A large response is received where it stays."""
        whole = bytearray(end)
        whole[: len(data)] = data
        view, filled = memoryview(whole), len(data)
        while filled < end:
            count = self.socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("the broker has closed the connection")
            filled += count
        return bytes(view)
