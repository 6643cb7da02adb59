"""Compares the checkpoint of the leader epochs with the batches, each of which has its epoch in its header.

The CRC of a batch does not cover its epoch, so the checkpoint helps to find a corrupt one. But the checkpoint itself
may be wrong. If one batch contradicts it, that batch counts as corrupt. If several do, and epochs that rise from batch
to batch explain them, the checkpoint is rebuilt; epochs that do not rise are corrupt ones.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import FoundBatch, Scan, ScanRange
from tailrace.log.scan.walk import walk
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import BatchHeader

_CONTRADICTING_BATCHES_MIN = 2  # then the checkpoint is wrong, not the batches


def sound_but_for_its_epoch(segment: Segment, damage: DamagedRange, following: int | None) -> BatchHeader | None:
    """Returns the header of the batch where this damage begins, if nothing but its leader epoch is wrong; else None."""
    if not damage.length:
        return None
    scan = Scan(ScanRange(segment.log, damage.position, segment.size, damage.first_offset, limit=following))
    return next((item.header for item in scan), None)


def corrected_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> LeaderEpochs | None:
    """Returns the epochs according to the batches, if they are right about several batches that contradict `epochs`:
    then `epochs` must be wrong. Returns None otherwise: then the batches are wrong.
    """
    ranges = _ranges(segments, epochs)
    rising = _rising(ranges)
    ignored = sum(one.batches for one in ranges) - sum(one.batches for one in rising)
    if sum(one.contradicting for one in ranges) - ignored < _CONTRADICTING_BATCHES_MIN:
        return None
    return _epochs_from(rising)


def epochs_of(segments: Sequence[Segment]) -> LeaderEpochs:
    """Returns the epochs according to the batches. Epochs only rise: the fewest batches that break the order are
    ignored.
    """
    return _epochs_from(_rising(_ranges(segments, LeaderEpochs())))


class _EpochRange(NamedTuple):
    """Consecutive batches of one epoch."""

    epoch: int
    first_offset: int
    batches: int
    contradicting: int  # how many of them contradict the known epochs


def _ranges(segments: Sequence[Segment], known: LeaderEpochs) -> list[_EpochRange]:
    ranges: list[_EpochRange] = []
    for header in _headers(segments):
        contradicting = known.range_at(header.base_offset)[0] not in (None, header.leader_epoch)
        if ranges and ranges[-1].epoch == header.leader_epoch:
            last = ranges[-1]
            ranges[-1] = last._replace(batches=last.batches + 1, contradicting=last.contradicting + contradicting)
        else:
            ranges.append(_EpochRange(header.leader_epoch, header.base_offset, 1, int(contradicting)))
    return ranges


class _Chain(NamedTuple):
    """Ranges whose epochs rise, as a linked list from the last to the first."""

    last: _EpochRange
    batches: int  # of all ranges
    before: "_Chain | None"


def _rising(ranges: Sequence[_EpochRange]) -> list[_EpochRange]:
    """Returns those ranges whose epochs rise, or stay the same, and that have the most batches together."""
    best: list[_Chain] = []  # the best chain up to each epoch, if larger than those of lower epochs
    for one in ranges:
        number = bisect_right(best, one.epoch, key=lambda chain: chain.last.epoch)
        before = best[number - 1] if number else None
        chain = _Chain(one, one.batches + (before.batches if before else 0), before)
        start = number - 1 if before is not None and before.last.epoch == one.epoch else number
        end = start
        while end < len(best) and best[end].batches <= chain.batches:
            end += 1
        best[start:end] = [chain]
    found, left = [], best[-1] if best else None
    while left is not None:
        found.append(left.last)
        left = left.before
    return found[::-1]


def _epochs_from(ranges: Sequence[_EpochRange]) -> LeaderEpochs:
    found = LeaderEpochs()
    for one in ranges:
        found.assign(one.epoch, one.first_offset)
    return found


def _headers(segments: Sequence[Segment]) -> Iterator[BatchHeader]:
    for segment in segments:
        for item in walk(ScanRange(segment.log, 0, segment.size, segment.base_offset, gaps=True)):
            if isinstance(item, FoundBatch):
                yield item.header
