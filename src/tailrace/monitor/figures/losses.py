"""Joins the entries of the loss ledger to what each group has missed. Pure; the format is in `facts/losses`.

    missed   opens a range of the group; the cut beside it gives the reason. One without a reason is of a group that has
             moved to before the start: earlier cuts have taken what it misses
    cut      while a range of a group is open, each later cut of the partition is missed by that group, too
    resumed  closes it: what lies before its `first` had been read after all
    skipped  a range of its own

A note of many groups takes several batches, of which the last has the cut: without it, nothing was deleted. Adjacent
ranges of a group with the same reason and client are one loss. A record is lost to a group once, whatever says so.

A consumer that is always too slow has a loss with each deletion, and the ledger is kept for ever. For sums alone, as in
metrics, old losses are added up.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

from tailrace.facts.losses import Loss, LossKind
from tailrace.monitor.figures.report import rfc3339

Place = tuple[str, int]  # topic id, partition


class LossJoin:
    """Takes the entries in the order of the ledger. Keeps what groups have missed, and little of all other deletions: a
    ledger is kept for ever. With `separate_ms`, losses that have ended, and are so much older than the last entry of
    their partition, become one for each group and reason, whose range is of no meaning.
    """

    def __init__(self, separate_ms: int | None = None) -> None:
        self._places: dict[Place, _Partition] = defaultdict(partial(_Partition, separate_ms))

    def take(self, entry: Loss) -> None:
        self._places[entry.topic_id, entry.partition].take(entry)

    def losses(self) -> list[Loss]:
        """Returns what each group has missed, in the order of groups, topics, partitions and offsets. The kind of each
        is MISSED or SKIPPED, and it has a reason.
        """
        found = sorted((loss for place in self._places.values() for loss in place.losses()), key=_order)
        sums = [loss for place in self._places.values() for loss in place.sums.values()]
        return [*sums, *(loss for _, of_place in groupby(found, key=_place) for loss in _merged(_once(of_place)))]


def join(entries: Iterable[Loss]) -> list[Loss]:
    """Returns what each group has missed, by all entries of the ledger: see `LossJoin`."""
    joined = LossJoin()
    for entry in entries:
        joined.take(entry)
    return joined.losses()


class _Partition:
    def __init__(self, separate_ms: int | None) -> None:
        self._separate_ms = separate_ms
        self.sums: dict[tuple[str, str | None], Loss] = {}  # by group and reason
        self._cuts: list[Loss] = []  # one behind the other; those of the same reason are one
        self._oldest: int | None = None  # of the last cut
        self._announced: list[Loss] = []  # missed, if the cut of their note comes
        self._open: dict[str, list[Loss]] = {}
        self._closed: deque[Loss] = deque()

    def take(self, entry: Loss) -> None:
        if self._separate_ms is not None:
            self._add_up(entry.at - self._separate_ms)
        match entry.kind:
            case LossKind.CUT:
                self._cut(entry)
            case LossKind.MISSED if entry.last < self._cut_to or entry.reason is None:
                self._missed(entry)
            case LossKind.MISSED:
                self._announced.append(entry)
            case LossKind.RESUMED:
                ranges = self._open.pop(entry.group, [])
                self._closed += (trimmed(one, entry.first) for one in ranges if one.last >= entry.first)
            case LossKind.SKIPPED:
                self._closed.append(entry)

    def _add_up(self, before_ms: int) -> None:
        while self._closed and self._closed[0].at < before_ms:
            loss = self._closed.popleft()
            key = loss.group, loss.reason
            known = self.sums.get(key)
            self.sums[key] = loss if known is None else _sum(known, loss)

    @property
    def _cut_to(self) -> int:
        return self._cuts[-1].last + 1 if self._cuts else 0

    def _cut(self, entry: Loss) -> None:
        if entry.last < self._cut_to:
            return  # repeated
        cut = trimmed(entry, self._cut_to)
        if cut.oldest is None and self._cuts:
            cut = cut._replace(oldest=self._cuts[-1].newest)
        self._oldest = cut.oldest
        _append(self._cuts, cut)
        for group, ranges in self._open.items():
            _append(ranges, cut._replace(kind=LossKind.MISSED, group=group))
        announced, self._announced = self._announced, []
        for missed in announced:
            if (missed.last, missed.at) == (entry.last, entry.at):  # not of a note that a crash cut short
                self._missed(missed)

    def _missed(self, entry: Loss) -> None:
        before = self._open.get(entry.group, [])
        if entry.reason is None:  # what lies before it had been read
            self._open[entry.group] = list(self._gone_before(entry))
        elif not before or before[0].first != entry.first:  # else it is repeated
            # If a range is open, its group has lost its offset and begun anew: the cut beside is not of that range.
            self._closed += (one for one in before if one.last < entry.first)
            oldest = self._oldest if entry.oldest is None else entry.oldest
            self._open[entry.group] = [entry._replace(oldest=oldest)]

    def _gone_before(self, entry: Loss) -> Iterator[Loss]:
        """Yields what earlier cuts have taken from a group that has moved to before the start."""
        for cut in self._cuts:
            if cut.last >= entry.first:
                yield trimmed(cut, entry.first)._replace(kind=LossKind.MISSED, group=entry.group, at=entry.at)

    def losses(self) -> Iterator[Loss]:
        yield from self._closed
        for ranges in self._open.values():
            yield from ranges


def trimmed(loss: Loss, first: int) -> Loss:
    """The part of a loss from `first` on. Its bytes are a share by offsets."""
    if first <= loss.first:
        return loss
    share = (loss.last + 1 - first) / (loss.last + 1 - loss.first)
    size = None if loss.size is None else round(loss.size * share)
    return loss._replace(first=first, records=min(loss.records, loss.last + 1 - first), size=size)


def _order(loss: Loss) -> tuple[str, str, str, int, int, int]:
    return loss.group, loss.topic, loss.topic_id, loss.partition, loss.first, loss.at


def _place(loss: Loss) -> tuple[str, str, int]:
    return loss.group, loss.topic_id, loss.partition


def _once(losses: Iterable[Loss]) -> Iterator[Loss]:
    """Leaves out what an earlier loss has: they are in the order of their first offsets."""
    to = 0
    for loss in losses:
        if loss.last >= to:
            yield trimmed(loss, to)
            to = loss.last + 1


def _merged(losses: Iterable[Loss]) -> list[Loss]:
    found: list[Loss] = []
    for loss in losses:
        _append(found, loss)
    return found


def _append(losses: list[Loss], loss: Loss) -> None:
    """Appends a loss, or adds it to the last one if it continues that."""
    last = losses[-1] if losses else None
    if last is None or not _continues(last, loss):
        losses.append(loss)
    else:
        losses[-1] = _sum(last, loss)


def _sum(one: Loss, other: Loss) -> Loss:
    return one._replace(
        last=other.last,
        records=one.records + other.records,
        exact=one.exact and other.exact,
        size=None if one.size is None or other.size is None else one.size + other.size,
        newest=one.newest if other.newest is None else max(other.newest, one.newest or other.newest),
        at=max(one.at, other.at),
    )


def _continues(before: Loss, loss: Loss) -> bool:
    same = ("kind", "reason", "client_id", "user", "topic")
    return loss.first == before.last + 1 and all(getattr(before, name) == getattr(loss, name) for name in same)


def shown(loss: Loss) -> dict[str, Any]:
    return {
        "group": loss.group,
        "topic": loss.topic,
        "topic_id": loss.topic_id,
        "partition": loss.partition,
        "first": loss.first,
        "last": loss.last,
        "records": loss.records,
        "exact": loss.exact,
        "bytes": loss.size,
        "oldest": None if loss.oldest is None else rfc3339(loss.oldest),
        "newest": None if loss.newest is None else rfc3339(loss.newest),
        "at": rfc3339(loss.at),
        "reason": loss.reason,
        "client_id": loss.client_id,
        "user": loss.user,
    }
