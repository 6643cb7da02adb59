"""Compiles kernels with numba, for types known beforehand, and keeps them in numba's cache on disk.

Importing a module with kernels compiles them, which takes seconds, or loads them from the cache, which takes a fraction
of one; so such a module is imported with the first rows. Where the cache can't be written or read, they are compiled
for this process alone. They release the GIL.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba import types
from numpy.typing import NDArray

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OUTPUT = types.Array(types.uint8, 1, "C")
TABLE = types.Array(types.int64, 2, "C")
INT64S = types.Array(types.int64, 1, "C")
INT32S = types.Array(types.int32, 1, "C")
FIELDS = types.Array(types.int32, 2, "C")  # each a start and a length, or a start and a count
INT64 = types.int64

NULL = -1  # the length of a field that is null

# Without numba's own reference counts, records are scanned in a seventh of the time. The kernels need none: they make
# no arrays and keep none, and their callers hold what they pass.
_OPTIONS = {"nogil": True, "_nrt": False}


def compiled(signature: Any) -> Callable[[Function], Function]:
    """Compiled for these types, now; or loaded, if numba's cache on disk has it."""

    def compile_function(function: Function) -> Function:
        try:
            return numba.njit(signature, cache=True, **_OPTIONS)(function)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001 - no place to write, a full disk, or whatever a damaged pickle raises
            return numba.njit(signature, **_OPTIONS)(function)  # type: ignore[no-any-return]

    return compile_function


def inlined(function: Function) -> Function:
    """Part of each kernel that calls it: compiled and cached with that."""
    return numba.njit(inline="always", **_OPTIONS)(function)  # type: ignore[no-any-return]
