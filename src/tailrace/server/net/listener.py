"""Accepts clients on one address, and knows the address that is advertised to them.

If `advertised` is None, clients are sent the address that they have connected to.

A connection that exceeds the quota of its address is held for a moment, unread, and then closed: a client whose
connection is closed at once would reconnect at once.
"""

import errno
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Endpoint
from tailrace.server.net.connection import Connection

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from tailrace.server.node import Node

logger = logging.getLogger("tailrace.server.net")

AT_ONCE_MAX = 64  # connections accepted in one turn of the loop
HELD_MAX = 1000  # connections over a quota; more are closed at once
REST_S = 1.0  # pause after the system has refused a connection, such as for too many descriptors
Connect = Callable[["Node", socket.socket, Endpoint, str], Connection]
_DIGITS = frozenset("0123456789.:")
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def bind(host: str, port: int, undo: ExitStack) -> list[socket.socket]:
    """Binds a socket to every address of `host`, all with the same port; `undo` closes them. Raises OSError if an
    address is in use, or none belongs to this machine.
    """
    # An address is passed as bytes: for a str Python imports the encoding of international names, which delays the
    # start.
    name = host.encode() if set(host) <= _DIGITS else host
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise OSError(errno.EINVAL, f"{host!r} is not a valid host name") from None
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((family, address[:2]) for family, _, _, _, address in found):
        try:
            sockets.append(undo.enter_context(_bind_one(family, str(address[0]), port)))
        except OSError as error:
            missing = OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}")
            if error.errno not in _NOT_HERE:
                raise missing from error
            continue  # such as ::1 for localhost, if IPv6 is off
        port = sockets[0].getsockname()[1]  # with port 0, the second address gets the port of the first
    if missing is not None and not sockets:
        raise missing
    return sockets


def _bind_one(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class Listener:
    def __init__(
        self,
        node: "Node",
        sock: socket.socket,
        advertised: Endpoint | None,
        connect: Connect = Connection,
        *,
        counted_as: str | None = None,
    ) -> None:
        """`connect` makes the connection of an accepted socket. It counts for its client's address, or `counted_as`."""
        self.host, self.port = sock.getsockname()[:2]
        self._node = node
        self._socket = sock
        self._advertised = advertised
        self._connect = connect
        self._counted_as = counted_as
        self._held: dict[socket.socket, TimerHandle] = {}
        configs = node.configs
        sock.listen(configs.number("socket.listen.backlog.size"))
        for option, name in ((socket.SO_SNDBUF, "socket.send"), (socket.SO_RCVBUF, "socket.receive")):
            if (size := configs.number(f"{name}.buffer.bytes")) >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
        self._resume()

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._node.loop.add_reader(self._socket.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(AT_ONCE_MAX):
            if (wait_s := self._node.wait_to_accept_s()) > 0:
                self._rest(wait_s)
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                logger.warning("cannot accept a connection: %s; trying again in %.0f s", error.strerror, REST_S)
                self._rest(REST_S)
                return
            try:
                self._accept(accepted, str(address[0]), int(address[1]))
            except OSError as error:  # the client is gone already
                logger.info("cannot serve %s: %s", address[0], error.strerror)
                accepted.close()

    def _rest(self, seconds: float) -> None:
        self._node.loop.remove_reader(self._socket.fileno())
        self._node.loop.call_later(seconds, self._resume)

    def _accept(self, accepted: socket.socket, host: str, port: int) -> None:
        counted_as = self._counted_as or host
        if not self._node.has_room_for(counted_as):
            accepted.close()
            return
        if wait_ms := self._node.connection_wait_ms(counted_as):
            self._hold(accepted, wait_ms)
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        endpoint = self._advertised or Endpoint(*accepted.getsockname()[:2])
        self._node.opened(self._connect(self._node, accepted, endpoint, str(Endpoint(host, port))), counted_as)

    def _hold(self, accepted: socket.socket, wait_ms: int) -> None:
        if len(self._held) >= HELD_MAX:
            accepted.close()
        else:
            self._held[accepted] = self._node.loop.call_later(wait_ms / 1000, self._let_go, accepted)

    def _let_go(self, accepted: socket.socket) -> None:
        self._held.pop(accepted).cancel()
        accepted.close()

    def close(self) -> None:
        for accepted in list(self._held):
            self._let_go(accepted)
        if self._socket.fileno() >= 0:
            self._node.loop.remove_reader(self._socket.fileno())
            self._socket.close()
