"""System calls on descriptors that differ by system: synced and direct writes, syncs, and preallocation.

Preallocated blocks may lie behind the end of a file, which Python's own `posix_fallocate` cannot do.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from functools import cache

from tailrace.log.disk.interface import Data

_SYNCED: int | None = getattr(os, "RWF_DSYNC", None)
_DIRECT: int = getattr(os, "O_DIRECT", 0)

SCARCE_BYTES = 16 << 30  # with less than this free, and less than a tenth of the disk, nothing is preallocated

_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, size: int) -> bool:
    """See `File.reserve`."""
    call = _fallocate()
    if call is None or is_scarce(os.fstatvfs(descriptor)):
        return False
    return call(descriptor, _KEEP_SIZE, position, size) == 0


def is_scarce(disk: os.statvfs_result) -> bool:
    """Returns whether preallocated blocks could soon make other writes fail for lack of space."""
    return disk.f_bavail < disk.f_blocks // 10 and disk.f_bavail * disk.f_frsize < SCARCE_BYTES


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Returns the C library's `fallocate`, if it has one. Looked up on first use: `ctypes` takes some milliseconds."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:  # some builds of Python have none
        return None

    library = ctypes.CDLL(None)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)  # the C library may be another
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call


def write_synced(descriptor: int, position: int, data: Data) -> bool:
    """Writes and syncs in one system call. Returns False where the system cannot, or wrote only a part."""
    if _SYNCED is None:
        return False
    try:
        return os.pwritev(descriptor, (data,), position, _SYNCED) == len(data)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        return False


def set_direct(descriptor: int, is_direct: bool) -> None:
    if _DIRECT:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if is_direct else flags & ~_DIRECT)


def sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        # macOS: fsync stops at the drive's own cache. Not tested by us on real hardware.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)
