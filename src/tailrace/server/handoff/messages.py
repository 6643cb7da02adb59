"""The messages between the broker and its helper process about a connection that is handed off, and its limits.

Both sides are of one release, except right after an upgrade in place: a broker that still runs may start a helper of
the next release. So fields are only ever added at the end, with a default.
"""

import marshal
from typing import NamedTuple

from tailrace.protocol.fetch_wire import FINAL_EPOCH, FetchAnswer

HANDED_OFF_MAX = 16  # connections at a time
HANDED_OFF_BYTES = 64 << 20  # of records, before the connection is returned
HANDED_OFF_S = 0.25
ANSWERS_MAX = 256  # responses, before the connection is returned: each is reported
MESSAGE_BYTES = 16 << 10
READY = 0  # not the number of a connection: the helper process has started

Unsent = tuple[bytes, int, int, bytes]  # of a response: bytes, position in the file, size in the file, bytes


class HandedOff(NamedTuple):
    """A connection on its way to the helper process, sent together with its socket and the file."""

    number: int
    frame: bytes  # the request to answer first
    places: tuple[int, int]  # of the session epoch in it, if it has one, and of the offset
    epoch: int  # of the session, or FINAL_EPOCH
    answer: FetchAnswer
    bounds: bytes
    limit: int  # of record bytes in a response
    least: int  # of the last response: with fewer bytes, the broker may have to wait for more
    position: int  # in the file, of the requested batch
    end: int  # of the bytes that may be served
    entries: bytes  # of the segment's index

    def encode(self) -> bytes:
        return marshal.dumps((*self[:4], tuple(self.answer), *self[5:]))

    @staticmethod
    def decode(data: bytes) -> "HandedOff":
        handed_off = HandedOff(*marshal.loads(data))  # noqa: S302 - from our parent
        return handed_off._replace(answer=FetchAnswer(*handed_off.answer))


class Returned(NamedTuple):
    """A connection on its way back to the broker, and what the helper process did with it."""

    number: int
    unread: bytes = b""  # received and not answered
    unsent: Unsent | None = None
    seconds: list[float] = []  # noqa: RUF012 - until each response began to be sent
    epoch: int = FINAL_EPOCH  # of the next request, if there is a session
    offset: int = 0  # requested by the last request that was answered
    bytes_in: int = 0
    bytes_out: int = 0
    is_cold: bool = False  # whether the next bytes have to come from the disk
    was_slow: bool = False  # whether the client was slow to take its response
    error: int = 0  # errno

    def encode(self) -> bytes:
        return marshal.dumps(tuple(self))

    @staticmethod
    def decode(data: bytes) -> "Returned":
        return Returned(*marshal.loads(data))  # noqa: S302 - from our child
