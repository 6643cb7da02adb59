"""Preallocation: disk blocks that a segment has ahead of its end.

A file system that finds a block for each page as it is written, and accounts for it, takes longer for that than to copy
the page: a fifth of what a broker does for a producer. So a segment that grows quickly asks for some megabytes of
blocks at once, without a new size (`File.reserve`): whoever reads the file, or finds it after a crash, sees no
difference, but the disk has less free.

    a segment that has grown by `BEGIN_BYTES` since it was opened, or last gave blocks back, has `AHEAD_BYTES` ahead
    a checkpoint after which nothing was appended gives back what is left: of a segment that is full, or rests
    so does recovery, for the process before it

Where the file system knows no such thing, or has no room, files grow as they are written; and where it took long to
find room, as the loop waits for it, that segment does not ask again for a while.
"""

from contextlib import suppress
from time import perf_counter

from tailrace.log.disk.interface import File

BEGIN_BYTES = 1 << 20
AHEAD_BYTES = 8 << 20
LONG_S = 0.005
LATER_BYTES = 128 << 20  # until a disk that took so long is asked again


class Blocks:
    """Those of one file, for its only writer."""

    __slots__ = ("_file", "_may_be_ahead", "end")

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._may_be_ahead = False
        self.end = size + BEGIN_BYTES  # who writes beyond asks for more

    def reserve(self, position: int, size: int) -> None:
        """What is about to be written there, and some more."""
        self._may_be_ahead = True  # even if it fails: a part may have been found
        start = perf_counter()
        with suppress(OSError):  # a file that cannot be written says so when it is written
            self._file.reserve(position, size + AHEAD_BYTES)
        self.end = position + size + (AHEAD_BYTES if perf_counter() - start < LONG_S else LATER_BYTES)

    def give_back(self, size: int) -> None:
        """The file has this size, and may not grow for a while."""
        if self._may_be_ahead:
            self._may_be_ahead = False
            give_back(self._file)
        self.end = size + BEGIN_BYTES


def give_back(file: File) -> None:
    """Afterwards there are most likely no blocks behind the end of the file; nobody has lost more than these if not."""
    with suppress(OSError):
        file.give_back()
