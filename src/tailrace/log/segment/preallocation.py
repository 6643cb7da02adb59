"""Preallocation: disk blocks that a segment has ahead of its end.

A file system that allocates a block for each page as it is written takes longer for that than for copying the page: a
fifth of the broker's time for a producer. So a segment that grows quickly reserves some megabytes of blocks at once,
without a change of its size (`File.reserve`). Readers, and recovery after a crash, see no difference, except that the
disk has less free space.

    a segment that has grown by `BEGIN_BYTES` since it was opened, or last gave blocks back, has `AHEAD_BYTES` ahead
    the next checkpoint gives the rest back if nothing was appended: the segment is full, or idle
    recovery gives back the blocks of the previous process

If the file system does not support this, or is full, files grow as they are written. If a reservation took long, which
blocks the event loop, that segment makes no other for a while.
"""

from contextlib import suppress
from time import perf_counter

from tailrace.log.disk.interface import File

BEGIN_BYTES = 1 << 20
AHEAD_BYTES = 8 << 20
LONG_S = 0.005
LATER_BYTES = 128 << 20  # growth until the next reservation, after one that took long


class Blocks:
    """The preallocated blocks of one file, for its only writer."""

    __slots__ = ("_file", "_may_be_ahead", "end")

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._may_be_ahead = False
        self.end = size + BEGIN_BYTES  # a write beyond it reserves more

    def reserve(self, position: int, size: int) -> None:
        """Reserves blocks for a write that is about to happen, and some more."""
        self._may_be_ahead = True  # even if it fails: some blocks may have been reserved
        start = perf_counter()
        with suppress(OSError):  # an error of the disk also fails the write, which reports it
            self._file.reserve(position, size + AHEAD_BYTES)
        self.end = position + size + (AHEAD_BYTES if perf_counter() - start < LONG_S else LATER_BYTES)

    def give_back(self, size: int) -> None:
        """Gives blocks behind this size back: the file may not grow for a while."""
        if self._may_be_ahead:
            self._may_be_ahead = False
            give_back(self._file)
        self.end = size + BEGIN_BYTES


def give_back(file: File) -> None:
    """Frees the blocks behind the end of the file, if possible. A failure costs only that space."""
    with suppress(OSError):
        file.give_back()
