"""What the broker and its helper process tell each other about a connection that is handed off, and its limits.

Both sides are of one release, except right after an upgrade in place: a broker that still runs may start a helper of
the next release. So fields are only ever added at the end, with a default.
"""

import marshal
from typing import NamedTuple

from tailrace.protocol.fetch_wire import FINAL_EPOCH, FetchAnswer

HANDED_OFF_MAX = 16  # connections at a time
HANDED_OFF_BYTES = 64 << 20  # of records, before the connection goes back
HANDED_OFF_S = 0.25
ANSWERS_MAX = 256  # each is told of when the connection goes back
MESSAGE_BYTES = 16 << 10
READY = 0  # the number of no connection: the helper process says that it has started

Unsent = tuple[bytes, int, int, bytes]  # of a response: bytes, where in the file, how much of it, and bytes


class HandedOff(NamedTuple):
    """A connection on its way to the helper process; its socket and the file go along with it."""

    number: int
    frame: bytes  # the request that is to be answered first
    places: tuple[int, int]  # of the epoch in it, where it has a session, and of the offset
    epoch: int  # of it, or FINAL_EPOCH
    answer: FetchAnswer
    bounds: bytes
    limit: int  # of the records in a response
    least: int  # of them in the last one: what is less may have to wait for more
    position: int  # in the file, of the batch that is asked for
    end: int  # of what may be served
    entries: bytes  # of its index

    def encode(self) -> bytes:
        return marshal.dumps((*self[:4], tuple(self.answer), *self[5:]))

    @staticmethod
    def decode(data: bytes) -> "HandedOff":
        handed_off = HandedOff(*marshal.loads(data))  # noqa: S302 - from our parent
        return handed_off._replace(answer=FetchAnswer(*handed_off.answer))


class Returned(NamedTuple):
    """A connection on its way back to the broker, and what the helper process did with it."""

    number: int
    unread: bytes = b""  # what was received and is not answered
    unsent: Unsent | None = None
    seconds: list[float] = []  # noqa: RUF012 - until each response began to leave
    epoch: int = FINAL_EPOCH  # of the next request, where there is a session
    offset: int = 0  # that was asked for by the last one that was answered
    bytes_in: int = 0
    bytes_out: int = 0
    is_cold: bool = False  # what comes next
    was_slow: bool = False  # the client, to take its response
    error: int = 0  # of the system

    def encode(self) -> bytes:
        return marshal.dumps(tuple(self))

    @staticmethod
    def decode(data: bytes) -> "Returned":
        return Returned(*marshal.loads(data))  # noqa: S302 - from our child
