"""Chooses the records that one acquisition takes."""

from tailrace.broker.queues.partition.pages import Pages
from tailrace.broker.queues.partition.states import Acquired


class Acquisition:
    """Takes free records, in order, as long as there are some `left`; `is_over` says that no more may follow."""

    def __init__(self, pages: Pages, records_max: int, suspect_from: int) -> None:
        self.acquired: list[Acquired] = []
        self.left = records_max
        self.is_over = records_max <= 0
        self._pages = pages
        self._suspect_from = suspect_from
        self._is_apart = True  # whether the next record begins a range

    def begin_batch(self, batch_size: int) -> None:
        """What follows is of another batch of the log: a range of at least `batch_size` records ends here."""
        if self.acquired and batch_size > 0:
            last = self.acquired[-1]
            self._is_apart = last.last - last.first + 1 >= batch_size

    def take(self, first: int, last: int, *, is_strict: bool) -> None:
        """Takes what is free in a range, or `left` records of it if `is_strict`."""
        for one, other, count in self._pages.free_runs(first, last):
            if count >= self._suspect_from:  # it comes by itself
                if not self.acquired:
                    self._add(one, one, count)
                self.is_over = True
                return
            self._add(one, min(other, one + self.left - 1) if is_strict else other, count)
            if is_strict and self.left <= 0:
                return

    def _add(self, first: int, last: int, count: int) -> None:
        self._pages.take(first, last)
        self.left -= last - first + 1
        if self.acquired and not self._is_apart:
            before = self.acquired[-1]
            if before.last + 1 == first and before.delivery_count == count + 1:
                self.acquired[-1] = before._replace(last=last)
                return
        self._is_apart = False
        self.acquired.append(Acquired(first, last, count + 1))
