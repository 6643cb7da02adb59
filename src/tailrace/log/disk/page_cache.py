"""The page cache: which bytes of a file are in it, so that reading them does not wait for a disk; and read-ahead.

Since Linux 6.5 one call reports that for a whole range (`cachestat`). On other systems, and where a container forbids
the call, sample bytes of the range are read without waiting (`preadv` with RWF_NOWAIT): that is eight times as slow,
and may miss a gap.
"""

import errno
import os
import struct
from collections.abc import Callable

Count = Callable[[int, int, int], int]
"""Returns how many pages of a file's range are in memory, or -1 where the system does not tell. Arguments: descriptor,
position, size."""

_CACHESTAT = 451  # the number of the system call, on all architectures that Python has wheels for
_RANGE = struct.Struct("=QQ")
_COUNTS = struct.Struct("=5Q")  # the first one is that of pages in memory
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_PROBED_BYTES = 32 << 10  # the distance between two samples
_PROBE = bytearray(1)  # a buffer for samples, whose bytes are never looked at

_FADVISE = getattr(os, "posix_fadvise", None)
_AHEAD_BYTES = (1 << 20) + (64 << 10)  # what most readers fetch next, and the header of the batch behind it
_ASKED_BYTES = 128 << 10  # per call, which takes 30 to 80 µs; of a much larger range the system may read only a part

_count: Count | None = None


def is_cached(descriptor: int, position: int, size: int) -> bool:
    """Returns whether all of these bytes are in the page cache. A best guess: see the head of this module."""
    global _count
    if _count is None:
        _count = _counting()
    last = position + size - 1
    count = _count(descriptor, position, size)
    if count >= 0:
        pages = last // _PAGE_BYTES - position // _PAGE_BYTES + 1
        # `cachestat` counts a page from the moment its read is requested. Pages usually arrive in order, so if the
        # last one is there, all are. If not, the sender waits for the rest of one read.
        return count == pages and fill_without_waiting(_PROBE, descriptor, last)
    _count = _does_not_say
    return fill_without_waiting(_PROBE, descriptor, *range(position, last, _PROBED_BYTES), last)


def fill_without_waiting(data: bytearray, descriptor: int, *positions: int) -> bool:
    """Fills `data` from each position in turn. Returns False where that would wait for a disk, or the file ends."""
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
        if error.errno == errno.EOPNOTSUPP:  # the file system does not support RWF_NOWAIT: the caller must use a thread
            return False
        raise
    return True


def _counting() -> Count:
    if not hasattr(os, "uname") or os.uname().sysname != "Linux":
        return _does_not_say
    import ctypes  # imported late: it takes some milliseconds, and only large responses need it

    call = ctypes.PyDLL(None).syscall  # PyDLL does not release the GIL: the call takes a microsecond

    def count(descriptor: int, position: int, size: int) -> int:
        counts = ctypes.create_string_buffer(_COUNTS.size)
        if call(_CACHESTAT, descriptor, _RANGE.pack(position, size), counts, 0):
            return -1
        return int(_COUNTS.unpack(counts)[0])

    return count


def _does_not_say(descriptor: int, position: int, size: int) -> int:
    return -1


def without_read_ahead(descriptor: int) -> int:
    """Turns off the system's own read-ahead for this descriptor, and returns it.

    With it on, even a read that must not wait for the disk can trigger read-ahead, which takes half a millisecond of
    the event loop's time. Callers that may wait read more at a time instead.
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
            os.sched_yield()  # the call takes a while, too, and other threads may be waiting for the processor
    return False
