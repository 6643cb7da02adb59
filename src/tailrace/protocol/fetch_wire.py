"""Fetch on the wire: the epochs of fetch sessions, and responses around records that are not decoded.

The requests of a fetch session are numbered by its epoch (KIP-227; the sessions are in `broker/fetch/sessions`). The
response for one partition is

    length · correlation id · topic, partition … · three offsets · … · length of the records · records · the rest

and its constant parts are encoded once (`broker/fastpath/fetch`).
"""

import struct
from typing import NamedTuple

from tailrace.protocol.primitives import write_varint

NO_SESSION = 0  # the session id of a request outside any session
INITIAL_EPOCH = 0  # the epoch of a request that begins a session
FINAL_EPOCH = -1  # the epoch of a request that ends a session, or has none
EPOCH_MAX = (1 << 31) - 1

BOUNDS = struct.Struct(">qqq")  # high watermark, last stable offset, log start offset

_LENGTH = struct.Struct(">i")
_LENGTH_AND_ID = struct.Struct(">ii")


def epoch_after(epoch: int) -> int:
    return epoch + 1 if epoch < EPOCH_MAX else INITIAL_EPOCH + 1


def length_of_records(size: int, is_flexible: bool) -> bytes:
    """Returns the encoded length of records of this size."""
    return write_varint(size + 1) if is_flexible else _LENGTH.pack(size)


class FetchAnswer(NamedTuple):
    """The constant parts of a response for one partition."""

    before: bytes  # between the correlation id and the three offsets
    between: bytes  # between these and the length of the records
    after: bytes  # behind the records
    is_flexible: bool

    def head(self, correlation_id: int, bounds: bytes, size: int) -> bytes:
        """Returns everything before records of this size."""
        rest = b"".join((self.before, bounds, self.between, length_of_records(size, self.is_flexible)))
        return _LENGTH_AND_ID.pack(4 + len(rest) + size + len(self.after), correlation_id) + rest
