"""Measures how quick the disk is, which decides whether the loop or a thread waits for a journal write.

A commit is one write into blocks that were written before. Where that takes a tenth of a millisecond or two, as it does
on a good disk, a thread that does it takes longer to be woken, and to wake the loop again, than the disk does: so the
loop waits itself: once for all that came in its turn, or at once for a client that is alone. Where the disk is slower
than that, or once it is, a thread waits, and goes on doing so until the disk has been quick for a while.

Where clients keep all processors busy, who has waited for the disk waits for a processor, too; a thread and the loop
behind it do so twice. So it is the least of the latest that says how quick the disk is, and their mean whether it can
be relied on.
"""

import time
from collections.abc import Callable

QUICK_S = 0.000_4  # the least
STEADY_S = 0.001  # the mean
STALL_S = 0.002
_WEIGHT = 1 / 16  # of the latest, in the mean
_FORGOTTEN = 1.05  # by how much the least grows with each that is slower


class DiskPace:
    """Told how long each journal write has taken."""

    __slots__ = ("_least_s", "_mean_s")

    def __init__(self) -> None:
        self._least_s = QUICK_S  # not known to be quick yet: the first is a thread's
        self._mean_s = STEADY_S

    @property
    def is_quick(self) -> bool:
        return self._least_s < QUICK_S and self._mean_s < STEADY_S

    def time(self, work: Callable[[], None]) -> None:
        start = time.perf_counter()
        work()
        self.took(time.perf_counter() - start)

    def took(self, seconds: float) -> None:
        """A stall counts in full: some twenty quick ones make up for one of 3 ms."""
        self._least_s = min(seconds, self._least_s * _FORGOTTEN)
        if seconds >= STALL_S:
            self._mean_s = max(self._mean_s, seconds)
        else:
            self._mean_s += (seconds - self._mean_s) * _WEIGHT
