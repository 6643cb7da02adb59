"""Measures how fast the disk is, which decides whether the loop or a thread waits for a journal write.

A journal write overwrites blocks that exist already. On a good disk it takes 0.1 or 0.2 ms: less than waking a thread
for it, and the loop again. So the loop waits itself: once for all appends of its turn, or at once for a client that is
alone. On a slower disk, a thread waits, until the disk has been fast for a while.

When clients keep all processors busy, a process that waited for the disk also waits for a processor; a thread and the
loop behind it do so twice. So the minimum of the latest writes says how fast the disk is, and their mean whether it is
steady.
"""

import time
from collections.abc import Callable

QUICK_S = 0.000_4  # limit of the minimum
STEADY_S = 0.001  # limit of the mean
STALL_S = 0.002
_WEIGHT = 1 / 16  # of the latest write, in the mean
_FORGOTTEN = 1.05  # growth of the minimum with each slower write


class DiskPace:
    """Collects the durations of journal writes."""

    __slots__ = ("_least_s", "_mean_s")

    def __init__(self) -> None:
        self._least_s = QUICK_S  # not known to be fast yet: a thread does the first write
        self._mean_s = STEADY_S

    @property
    def is_quick(self) -> bool:
        return self._least_s < QUICK_S and self._mean_s < STEADY_S

    def time(self, work: Callable[[], None]) -> None:
        start = time.perf_counter()
        work()
        self.took(time.perf_counter() - start)

    def took(self, seconds: float) -> None:
        """Adds a duration. A stall counts in full: some twenty fast writes make up for one of 3 ms."""
        self._least_s = min(seconds, self._least_s * _FORGOTTEN)
        if seconds >= STALL_S:
            self._mean_s = max(self._mean_s, seconds)
        else:
            self._mean_s += (seconds - self._mean_s) * _WEIGHT
