"""The page cache: which bytes of a file it has, so that reading them waits for no disk, and read-ahead into it.

Linux says it of a whole range at once since 6.5 (`cachestat`). Elsewhere, and where a container forbids it, some bytes
of the range are read without waiting (`preadv` with RWF_NOWAIT): that is eight times as slow, and may miss a gap.
"""

import errno
import os
import struct
from collections.abc import Callable

Count = Callable[[int, int, int], int]
"""How many pages of a file, of a range of it, are in memory; -1 where the system does not say."""

_CACHESTAT = 451  # the number of the system call, on all architectures that Python has wheels for
_RANGE = struct.Struct("=QQ")
_COUNTS = struct.Struct("=5Q")  # the first one is that of pages in memory
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_PROBED_BYTES = 32 << 10  # in between, what is remembered may have come piece by piece
_PROBE = bytearray(1)  # for those who want to know whether they could read, and nothing else

_FADVISE = getattr(os, "posix_fadvise", None)
_AHEAD_BYTES = (1 << 20) + (64 << 10)  # what most readers ask for next, and the header of the batch behind it
_ASKED_BYTES = 128 << 10  # at a time: 30 to 80 µs; of much more the system may bring only a part

_count: Count | None = None


def is_cached(descriptor: int, position: int, size: int) -> bool:
    """Whether all of these bytes are in memory, as far as one can tell."""
    global _count
    if _count is None:
        _count = _counting()
    last = position + size - 1
    count = _count(descriptor, position, size)
    if count >= 0:
        pages = last // _PAGE_BYTES - position // _PAGE_BYTES + 1
        # A page counts from when it was asked for. As a rule they come in their order, so that the last one says that
        # all are there; else whoever sends them waits for the rest of one read.
        return count == pages and fill_without_waiting(_PROBE, descriptor, last)
    _count = _does_not_say
    return fill_without_waiting(_PROBE, descriptor, *range(position, last, _PROBED_BYTES), last)


def fill_without_waiting(data: bytearray, descriptor: int, *positions: int) -> bool:
    """From one position after the other. False where that would wait for a disk, or the file is shorter."""
    if _NOWAIT is None:
        return False
    buffers, size = [data], len(data)
    try:
        for position in positions:
            if os.preadv(descriptor, buffers, position, _NOWAIT) != size:
                return False
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a file system that cannot tell: its caller must go through a thread
            return False
        raise
    return True


def _counting() -> Count:
    if not hasattr(os, "uname") or os.uname().sysname != "Linux":
        return _does_not_say
    import ctypes  # here, as it takes some milliseconds: who never sends a large answer has no need of it

    call = ctypes.PyDLL(None).syscall  # which keeps the interpreter: it takes a microsecond

    def count(descriptor: int, position: int, size: int) -> int:
        counts = ctypes.create_string_buffer(_COUNTS.size)
        if call(_CACHESTAT, descriptor, _RANGE.pack(position, size), counts, 0):
            return -1
        return int(_COUNTS.unpack(counts)[0])

    return count


def _does_not_say(descriptor: int, position: int, size: int) -> int:
    return -1


def without_read_ahead(descriptor: int) -> int:
    """Else whoever reads a page at the right place begins to read those that follow it, and be it one that asks not to
    wait for a disk: half a millisecond of the loop's time. Who may wait asks for more at a time.
    """
    if _FADVISE is not None:
        _FADVISE(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def read_ahead(descriptor: int, position: int, size: int) -> bool:
    """See `File.read_ahead`."""
    ahead, end = position + size, min(position + size + _AHEAD_BYTES, os.fstat(descriptor).st_size)
    probe = bytearray(1)
    if end <= position or fill_without_waiting(probe, descriptor, end - 1):
        return True
    if _FADVISE is not None:
        is_there = ahead < end and fill_without_waiting(probe, descriptor, position, ahead - 1)  # since the last time
        for start in range(ahead if is_there else position, end, _ASKED_BYTES):
            _FADVISE(descriptor, start, min(_ASKED_BYTES, end - start), os.POSIX_FADV_WILLNEED)
            os.sched_yield()  # asking takes a while, too, and others may wait for the processor
    return False
