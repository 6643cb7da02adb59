"""How quick the disk is, which decides who waits for a commit.

A commit is one write into blocks that were written before. Where that takes a tenth of a millisecond, as it does on a
good disk, a thread that does it takes longer to be woken, and to wake the loop again, than the disk does: so the loop
waits itself, once for all that came in its turn. Where the disk is slower than that, or once it is, a thread waits, and
goes on doing so until the disk has been quick for a while.
"""

import time
from collections.abc import Callable

QUICK_S = 0.001  # a quick disk looks like 0.4 ms where clients take all processors
STALL_S = 0.005
_WEIGHT = 1 / 16  # of the latest


class DiskPace:
    """Told of one commit after the other, by whoever runs it."""

    __slots__ = ("_mean_s",)

    def __init__(self) -> None:
        self._mean_s = QUICK_S  # not known to be quick yet: the first few are a thread's

    @property
    def is_quick(self) -> bool:
        return self._mean_s < QUICK_S

    def time(self, work: Callable[[], None]) -> None:
        start = time.perf_counter()
        work()
        self.took(time.perf_counter() - start)

    def took(self, seconds: float) -> None:
        """A stall counts in full: some thirty quick ones make up for one of 5 ms."""
        if seconds >= STALL_S:
            self._mean_s = max(self._mean_s, seconds)
        else:
            self._mean_s += (seconds - self._mean_s) * _WEIGHT
