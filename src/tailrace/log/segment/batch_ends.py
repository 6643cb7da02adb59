"""Where batches end, by their headers alone: for those who pass batches on and know that they are sound."""

import errno
from collections.abc import Callable

from tailrace.log.disk.interface import Data
from tailrace.records.batch import EXTENT, HEADER_SIZE, LENGTH_END, LENGTH_MIN

HEADERS_BYTES = 8192  # read at a time when only headers are wanted: two index intervals


def end_of_whole_batches(
    read: Callable[[int, int], Data], start: int, position: int, wanted: int, limit: int
) -> tuple[int, int]:
    """How far whole batches go from the one at `start`: to `wanted` at most, but that one at least, if it ends before
    `limit`. One of them begins at `position`, where the look begins. The position where they end, and the offset that
    follows: `start` and -1 where there is none. Raises OSError for bytes that cannot be a batch, however sound they
    were once.
    """
    first, next_offset = position, -1
    window: Data = b""
    while position < wanted:
        if len(window) - (position - first) < HEADER_SIZE:
            first, window = position, read(position, HEADERS_BYTES)
        if len(window) < HEADER_SIZE:
            raise OSError(errno.EIO, f"the file ends amid a batch at {position}")
        base_offset, length, last_offset_delta = EXTENT.unpack_from(window, position - first)
        if length < LENGTH_MIN:
            raise OSError(errno.EIO, f"a batch of an impossible length at {position}")
        end = position + LENGTH_END + length
        if end > (wanted if position > start else limit):
            return position, base_offset if next_offset < 0 < position - start else next_offset
        position, next_offset = end, base_offset + last_offset_delta + 1
    return position, next_offset
