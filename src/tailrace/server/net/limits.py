"""Bounds the memory of requests that have not arrived whole, of all connections together.

A connection that would go beyond waits until others have let go. One at a time may go beyond, to the end of its
request: else some that have a part each could all wait for each other.

When one has waited for too long, room is made: of those that could go on, the one that has held its memory for the
longest without asking for more is closed, if that is as long; else the one that waits. So a few that send slowly, or
not at all, cannot hold up the rest for ever.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.server.net.connection import Connection

FIRST_BYTES = 1 << 20  # of a buffer for a request that claims to be larger, at most
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
        self._held: OrderedDict[Connection, Held] = OrderedDict()  # the one that has not changed for longest first
        self._waiting: OrderedDict[Connection, TimerHandle] = OrderedDict()
        self._beyond: Connection | None = None  # the one that has gone beyond the limit
        self.total = 0

    def first_bytes(self) -> int:
        """Where half of all is taken, a connection begins small."""
        return FIRST_BYTES if 2 * self.total < self._limit else FIRST_BYTES_SCARCE

    @property
    def is_used_up(self) -> bool:
        return self.total >= self._limit

    def holds(self, connection: "Connection", size: int) -> None:
        """What a connection holds now. Others go on where it has become less."""
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
        """Whether a connection may hold so much now. If not, it is told to go on (`Connection.answer`) when it may."""
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
        """Those who have waited for longest try again; if that is in vain, others are the first next time."""
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
