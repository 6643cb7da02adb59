"""Blocks for a part of a file that may lie behind its end, which Python's own `posix_fallocate` cannot ask for."""

import os
import sys
from collections.abc import Callable
from functools import cache

SCARCE_BYTES = 16 << 30  # with less free, and less than a tenth of the disk, there is nothing to spare

_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, size: int) -> bool:
    """See `File.reserve`."""
    call = _fallocate()
    if call is None or is_scarce(os.fstatvfs(descriptor)):
        return False
    return call(descriptor, _KEEP_SIZE, position, size) == 0


def is_scarce(disk: os.statvfs_result) -> bool:
    """Whether somebody may be refused soon for want of what others have ahead."""
    return disk.f_bavail < disk.f_blocks // 10 and disk.f_bavail * disk.f_frsize < SCARCE_BYTES


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The system's, if it has one. Looked for when it is wanted, as `ctypes` takes some milliseconds."""
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
