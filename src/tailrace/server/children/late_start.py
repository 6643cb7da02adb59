"""Starts the child processes a moment after the broker has begun to serve, where the settings ask for any."""

import logging
import socket
from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.server.node import Node

if TYPE_CHECKING:
    from tailrace.server.children.children import Children
    from tailrace.server.children.http_port import HttpPort

logger = logging.getLogger("tailrace.server.children")

AFTER_S = 2.0  # clients that wait for the broker are served first


class LateStart:
    def __init__(self, node: Node, http: "HttpPort | None" = None) -> None:
        """Closes the port when it stops. The first client that connects to it does not wait for the moment."""
        self._node = node
        self._http = http
        self._watched: list[socket.socket] = list(http.sockets) if http is not None else []
        self._children: Children | None = None
        self._timer: TimerHandle | None = None
        if node.configs.flag("tailrace.monitor.enable") or http is not None:
            self._timer = node.loop.call_later(AFTER_S, self._start)
        for sock in self._watched:
            node.loop.add_reader(sock.fileno(), self._start)

    def _start(self) -> None:
        from tailrace.server.children.children import Children  # imported late: a start needs none of it

        self._give_up_waiting()
        try:
            self._children = Children(self._node, self._http)
        except OSError as error:
            logger.warning("cannot start the monitor and the gateway: no port on loopback: %s", error)

    def _give_up_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._watched:
            self._node.loop.remove_reader(sock.fileno())
        self._watched.clear()

    def stop(self) -> Callable[[], None]:
        """Tells the children to end. Returns what waits until they have ended; call it when the broker has stopped."""
        self._give_up_waiting()
        wait = self._children.stop() if self._children is not None else nothing
        if self._http is not None:
            self._http.close()
        return wait


def nothing() -> None:
    """Waits for no child."""
