"""Compares the checkpoint of the leader epochs with the batches, each of which has its epoch in its header.

The checkpoint of the epochs is a hint. Outside of what a batch's CRC covers, it tells a rotten epoch in a header; but
it may be the one that is wrong. One batch that contradicts it is taken to be rotten, and several are believed.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange
from tailrace.log.scan.scan import FoundBatch, Scan
from tailrace.log.scan.walk import walk
from tailrace.log.segment.segment import Segment
from tailrace.records.batch import BatchHeader

_BELIEVED_FROM = 2  # batches that contradict the checkpoint


def sound_but_for_its_epoch(segment: Segment, damage: DamagedRange, following: int | None) -> BatchHeader | None:
    """The header of the batch where this damage begins, if it is whole, intact and of the offset that is due; None
    where it is damaged in another way than by its leader epoch.
    """
    if not damage.length:
        return None
    scan = Scan(segment.log, damage.position, segment.size, damage.first_offset, limit=following)
    return next((item.header for item in scan), None)


def are_contradicted(epochs: LeaderEpochs, segments: Sequence[Segment]) -> bool:
    """Whether so many sound batches of these segments have another epoch that `epochs` must be wrong."""
    known = ((header, epochs.stretch_at(header.base_offset)[0]) for header in _headers(segments))
    others = (header for header, epoch in known if epoch not in (None, header.leader_epoch))
    return len(list(islice(others, _BELIEVED_FROM))) == _BELIEVED_FROM


def epochs_of(segments: Sequence[Segment]) -> LeaderEpochs:
    """The epochs as the batches have them. They only rise: a single batch that disturbs that is not believed."""
    ranges: list[_EpochRange] = []
    for header in _headers(segments):
        if ranges and ranges[-1].epoch == header.leader_epoch:
            ranges[-1] = ranges[-1]._replace(batches=ranges[-1].batches + 1)
        else:
            ranges.append(_EpochRange(header.leader_epoch, header.base_offset, 1))
    found = LeaderEpochs()
    for before, one, after in zip([None, *ranges], ranges, [*ranges[1:], None], strict=False):
        falls = (before is not None and one.epoch < before.epoch) or (after is not None and after.epoch < one.epoch)
        if one.batches > 1 or not falls:
            found.assign(one.epoch, one.first_offset)
    return found


class _EpochRange(NamedTuple):
    """Batches of one epoch, one behind the other."""

    epoch: int
    first_offset: int
    batches: int


def _headers(segments: Sequence[Segment]) -> Iterator[BatchHeader]:
    for segment in segments:
        for item in walk(segment.log, 0, segment.size, segment.base_offset, gaps=True):
            if isinstance(item, FoundBatch):
                yield item.header
