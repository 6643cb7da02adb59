"""Idle connections of one process, by address.

The thread that takes a connection has it to itself, so that a long wait does not block another thread. A connection
that is returned with responses outstanding is used again once they have come. A forked process closes and forgets the
connections that it inherited.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.client.errors import ClientError
from tailrace.client.net.connection import Connection
from tailrace.client.options import Address, ClientOptions

IDLE_MAX = 4  # for each broker; beyond that, the longest idle one is closed


class Pool:
    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()  # a new one: a thread that was not forked may hold the old one
        self._idle: dict[Address, list[Connection]] = {}

    def take(self, address: Address, deadline: float) -> Connection:
        """Takes a connection without outstanding responses. Raises ClientError if none can be opened."""
        while (idle := self._idle_one(address)) is not None:
            try:
                idle.drain(deadline)
            except ClientError:
                continue
            if idle.is_usable:
                return idle
            idle.close()
        return Connection(self._options, address, deadline)

    def _idle_one(self, address: Address) -> Connection | None:
        """The connection used last; a busy one only if its responses have begun to arrive."""
        with self._lock:
            idle = self._idle.get(address, [])
            for connection in reversed(idle):
                if connection.is_closed or not connection.is_busy or connection.has_arrived:
                    idle.remove(connection)
                    if not connection.is_closed:
                        return connection
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        connection.abandon()
        with self._lock:
            idle = self._idle.setdefault(connection.address, [])
            idle.append(connection)
            surplus = idle.pop(0) if len(idle) > IDLE_MAX else None
        if surplus is not None:
            surplus.close()

    @contextmanager
    def lease(self, address: Address, deadline: float) -> Iterator[Connection]:
        connection = self.take(address, deadline)
        try:
            yield connection
        finally:
            self.give_back(connection)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def _after_fork(self) -> None:
        inherited = self._idle
        self._forget()
        for connections in inherited.values():
            for connection in connections:
                connection.close()  # closes our copy of the descriptor; the parent's stays open


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
