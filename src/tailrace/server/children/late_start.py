"""Starts the child processes a moment after the broker has begun to serve, where the configs ask for any."""

import logging
from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.server.node import Node

if TYPE_CHECKING:
    from tailrace.server.children.children import Children

logger = logging.getLogger("tailrace.server.children")

AFTER_S = 2.0  # clients that wait for the broker are served first


class LateStart:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._children: Children | None = None
        self._timer: TimerHandle | None = None
        if node.configs.flag("tailrace.monitor.enable"):
            self._timer = node.loop.call_later(AFTER_S, self._start)

    def _start(self) -> None:
        from tailrace.server.children.children import Children  # imported late: a start needs none of it

        try:
            self._children = Children(self._node)
        except OSError as error:
            logger.warning("cannot start the monitor: no port on loopback: %s", error)

    def stop(self) -> Callable[[], None]:
        """Tells the children to end. Returns what waits until they have ended; call it when the broker has stopped."""
        if self._timer is not None:
            self._timer.cancel()
        return self._children.stop() if self._children is not None else nothing


def nothing() -> None:
    """Waits for no child."""
