"""Fetch on the wire: the epochs of fetch sessions, and responses assembled around records that stay bytes.

The requests of a fetch session are numbered by its epoch (KIP-227; `broker/fetch/sessions` has the sessions). The
response for one partition is

    length · correlation id · topic, partition … · three offsets · … · length of the records · records · the rest

and what does not change from one response to the next is encoded once (`broker/fastpath/fetch`).
"""

import struct
from typing import NamedTuple

from tailrace.protocol.primitives import write_varint

NO_SESSION = 0  # the session id of a request outside any session
INITIAL_EPOCH = 0  # of a request that begins a session
FINAL_EPOCH = -1  # of a request that ends one, or has none
EPOCH_MAX = (1 << 31) - 1

BOUNDS = struct.Struct(">qqq")  # high watermark, last stable offset, log start offset

_LENGTH = struct.Struct(">i")
_LENGTH_AND_ID = struct.Struct(">ii")


def epoch_after(epoch: int) -> int:
    return epoch + 1 if epoch < EPOCH_MAX else INITIAL_EPOCH + 1


def length_of_records(size: int, is_flexible: bool) -> bytes:
    """As it stands before records of so many bytes."""
    return write_varint(size + 1) if is_flexible else _LENGTH.pack(size)


class FetchAnswer(NamedTuple):
    """What the answers have in common."""

    before: bytes  # between the correlation id and the three offsets
    between: bytes  # them and the length of the records
    after: bytes  # the records
    is_flexible: bool

    def head(self, correlation_id: int, bounds: bytes, size: int) -> bytes:
        """All that stands before records of so many bytes."""
        rest = b"".join((self.before, bounds, self.between, length_of_records(size, self.is_flexible)))
        return _LENGTH_AND_ID.pack(4 + len(rest) + size + len(self.after), correlation_id) + rest
