"""How much memory requests that have not arrived whole may take, of all connections together.

A connection that would go beyond waits until others have let go. One that waits for too long is closed, so that a few
that send slowly cannot hold up the rest for ever.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.server.connection import Connection

FIRST_BYTES = 1 << 20  # of a buffer for a request that claims to be larger: most are received without growing
FIRST_BYTES_SCARCE = 4 << 10


class Budget:
    def __init__(self, loop: AbstractEventLoop, limit: int, timeout_s: float) -> None:
        self._loop = loop
        self._limit = limit
        self._timeout_s = timeout_s
        self._held: dict[Connection, int] = {}
        self._waiting: OrderedDict[Connection, TimerHandle] = OrderedDict()
        self.total = 0

    def first_bytes(self) -> int:
        """Where half of all is taken, a connection begins small."""
        return FIRST_BYTES if 2 * self.total < self._limit else FIRST_BYTES_SCARCE

    def holds(self, connection: "Connection", size: int) -> None:
        """What a connection holds now. Others go on where it has become less."""
        self.total += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        elif timer := self._waiting.pop(connection, None):
            timer.cancel()
        if self._waiting and self.total < self._limit:
            self._wake()

    def may_hold(self, connection: "Connection", size: int) -> bool:
        """Whether a connection may hold so much now. If not, it is told to go on (`Connection.answer`) when it may."""
        growth = size - self._held.get(connection, 0)
        if self.total + growth <= self._limit or self.total == self._held.get(connection, 0):
            self.holds(connection, size)
            return True
        if connection not in self._waiting:
            error = TimeoutError("the broker has no memory to receive so large a request")
            self._waiting[connection] = self._loop.call_later(self._timeout_s, connection.fail, error)
        return False

    def _wake(self) -> None:
        connection, timer = self._waiting.popitem(last=False)
        timer.cancel()
        self._loop.call_soon(connection.answer)
