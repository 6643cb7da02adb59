"""The port that the gateway serves HTTP on, bound by the broker.

The broker binds it at its start, so that the start fails where a port that was asked for is taken, and a port that
was found stays the same when the gateway is started again. It never accepts a connection: clients that connect while
no gateway runs wait in the kernel's queue.
"""

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from tailrace.server.net.listener import bind
from tailrace.server.settings import HttpSettings

PORTS_TRIED = 100  # from the default one on
BACKLOG = 2048
PACKAGES = ("starlette", "uvicorn", "httptools")
INSTALL = "pip install 'tailrace[gateway]'"


class NoPort(Exception):
    """The gateway cannot have the port that it was asked for. The message says why."""


class HttpPort(NamedTuple):
    """Listening sockets, one for each address of the host, all with the same port."""

    host: str  # as it was given
    sockets: Sequence[socket.socket]
    token: str | None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


def missing_packages() -> list[str]:
    """The packages of the gateway that are not installed."""
    from importlib.util import find_spec

    return [name for name in PACKAGES if find_spec(name) is None]


def open_port(settings: HttpSettings) -> HttpPort:
    """Binds the port, or the first free one after it if it is the default. Raises NoPort."""
    host, first = settings.address
    last = first + PORTS_TRIED - 1 if settings.is_default else first
    for port in range(first, last + 1):
        with ExitStack() as undo:
            try:
                sockets = bind(host, port, undo)
                for sock in sockets:
                    sock.listen(BACKLOG)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and port < last:
                    continue
                raise NoPort(error.strerror or str(error)) from None
            undo.pop_all()
            return HttpPort(host, sockets, settings.token)
    raise AssertionError("the last port is taken or free")
