"""The broker's child processes, and the listener that serves them alone.

They start a moment after the broker has begun to serve, so that neither a start nor the first clients wait for them.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from tailrace.broker.configs.tables import BROKER_KEYS
from tailrace.server.children import access
from tailrace.server.children.access import Access
from tailrace.server.children.child import Child
from tailrace.server.children.http_port import HttpPort
from tailrace.server.net.listener import Listener, bind
from tailrace.server.net.private import PrivateConnection
from tailrace.server.node import CHILDREN, Node

logger = logging.getLogger("tailrace.server.children")

HOST = "127.0.0.1"
MONITOR = "tailrace.monitor"
GATEWAY = "tailrace.gateway"
_MONITOR_CONFIGS = ("tailrace.monitor.", "tailrace.alert.")
_GATEWAY_CONFIGS = ("tailrace.http.",)


class Children:
    """Used from the loop's thread alone."""

    def __init__(self, node: Node, http: HttpPort | None) -> None:
        """Starts the monitor where the configs ask for it, and the gateway where it has a port.

        Raises OSError if no port can be bound on loopback.
        """
        self._node = node
        self._is_stopping = False
        token = access.new_token()
        with ExitStack() as undo:
            (sock,) = bind(HOST, 0, undo)
            connect = partial(PrivateConnection, token=token)
            self._listener = Listener(node, sock, None, connect, counted_as=CHILDREN)
            undo.pop_all()
        self.access = Access(self._listener.port, token)
        self.children: list[Child] = []
        if node.configs.flag("tailrace.monitor.enable"):
            greeting = self._greeting(configs=_configs(node, _MONITOR_CONFIGS))
            self.children.append(Child(node.loop, node.jobs, "monitor", MONITOR, greeting))
        if http is not None:
            descriptors = [sock.fileno() for sock in http.sockets]
            greeting = self._greeting(
                configs=_configs(node, _GATEWAY_CONFIGS), host=http.host, sockets=descriptors, http_token=http.token
            )
            self.children.append(Child(node.loop, node.jobs, "gateway", GATEWAY, greeting, descriptors))
        node.metrics.further_pages.append(self._pages)
        node.jobs.submit(self._write_access, self._start)

    def _greeting(self, **further: object) -> bytes:
        return json.dumps({**self.access._asdict(), **further}).encode()

    def _write_access(self) -> None:
        try:
            access.write(self._node.data, self.access)
        except OSError as error:
            logger.warning("cannot write %s: %s; child processes do not need it", access.FILE, error)
        if self._is_stopping:
            access.remove(self._node.data)

    def _start(self) -> None:
        for child in self.children:
            child.start()

    def _pages(self) -> Iterator[bytes]:
        title = "Starts of a child process of the broker; more than one is a child that has failed."
        yield f"# HELP tailrace_child_starts_total {title}\n".encode()
        yield b"# TYPE tailrace_child_starts_total counter\n"
        for child in self.children:
            yield f'tailrace_child_starts_total{{child="{child.name}"}} {child.starts}\n'.encode()
        yield from (child.page for child in self.children)

    def stop(self) -> Callable[[], None]:
        """Tells the children to end, and closes the listener. Returns what waits until they have ended."""
        self._is_stopping = True
        self._listener.close()
        waits = [child.stop() for child in self.children]
        access.remove(self._node.data)

        def wait() -> None:
            for one in waits:
                one()

        return wait


def _configs(node: Node, prefixes: tuple[str, ...]) -> dict[str, str]:
    names = [name for name in BROKER_KEYS if name.startswith(prefixes)]
    return {name: node.configs.text(name) for name in names}
