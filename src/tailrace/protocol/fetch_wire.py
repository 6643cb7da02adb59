"""The answer to a Fetch of one partition, put together around records that nobody looks at.

    length · correlation id · topic, partition … · three offsets · … · length of the records · records · the rest

What does not change from one answer to the next is encoded once (`broker/fastpath/fetch`).
"""

import struct
from typing import NamedTuple

from tailrace.protocol.primitives import write_varint

BOUNDS = struct.Struct(">qqq")  # high watermark, last stable offset, log start offset

_LENGTH = struct.Struct(">i")
_LENGTH_AND_ID = struct.Struct(">ii")


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
