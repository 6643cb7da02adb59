"""Limits the memory of requests that have not arrived whole, over all connections.

A connection that would exceed the limit waits until others have released memory. One connection at a time may exceed
it, to complete its request: otherwise several half-received requests could all wait for each other.

When one has waited for too long, a connection is closed: the one that has held its memory for the longest without
asking for more, if that is as long; otherwise the waiting one. So a few slow or silent clients cannot block the rest
for ever.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.server.net.connection import Connection

FIRST_BYTES = 1 << 20  # largest initial buffer of a request that claims to be larger
FIRST_BYTES_SCARCE = 4 << 10
WOKEN_AT_ONCE = 16


class Held(NamedTuple):
    size: int
    since: float


class Budget:
    def __init__(self, loop: AbstractEventLoop, limit: int, timeout_s: float) -> None:
        self._loop = loop
        self._limit = limit
        self._timeout_s = timeout_s
        self._held: OrderedDict[Connection, Held] = OrderedDict()  # unchanged for longest first
        self._waiting: OrderedDict[Connection, TimerHandle] = OrderedDict()
        self._beyond: Connection | None = None  # the one that may exceed the limit
        self.total = 0

    def first_bytes(self) -> int:
        """The largest initial buffer. It is small when half of the memory is in use."""
        return FIRST_BYTES if 2 * self.total < self._limit else FIRST_BYTES_SCARCE

    @property
    def is_used_up(self) -> bool:
        return self.total >= self._limit

    def holds(self, connection: "Connection", size: int) -> None:
        """Notes the memory that a connection holds now. Wakes waiting connections if it has become less."""
        before = self._size(connection)
        if size == before:
            return
        self.total += size - before
        self._held.pop(connection, None)
        if size:
            self._held[connection] = Held(size, self._loop.time())
        else:
            self._waits_no_more(connection)
        if size < before:
            if connection is self._beyond:
                self._beyond = None
            self._wake()

    def may_hold(self, connection: "Connection", size: int) -> bool:
        """Whether a connection may hold `size` bytes now. If not, `Connection.answer` is called when it may."""
        if self.total - self._size(connection) + size > self._limit:
            if self._beyond is not None and self._beyond is not connection:
                if connection not in self._waiting:
                    self._waiting[connection] = self._loop.call_later(self._timeout_s, self._make_room, connection)
                return False
            self._beyond = connection
        self._waits_no_more(connection)
        self.holds(connection, size)
        return True

    def _size(self, connection: "Connection") -> int:
        held = self._held.get(connection)
        return held.size if held is not None else 0

    def _waits_no_more(self, connection: "Connection") -> None:
        if timer := self._waiting.pop(connection, None):
            timer.cancel()

    def _wake(self) -> None:
        """Lets the connections that have waited for longest try again; if that fails, others are first next time."""
        for connection in list(islice(self._waiting, WOKEN_AT_ONCE)):
            self._waiting.move_to_end(connection)
            self._loop.call_soon(connection.answer)

    def _make_room(self, waiting: "Connection") -> None:
        still = next((one for one in self._held if one not in self._waiting), waiting)
        if self._loop.time() - self._held[still].since < self._timeout_s:
            still = waiting
        del self._waiting[waiting]
        if still is not waiting:
            self._loop.call_soon(waiting.answer)
        still.fail(TimeoutError("the broker has no memory to receive so large a request"))
