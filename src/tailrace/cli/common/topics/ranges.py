"""Resolves positions to a range of offsets per partition."""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.cli.common import output
from tailrace.cli.common.topics.offsets import Offsets, Partition
from tailrace.cli.common.topics.positions import Earliest, Last, Latest, Offset, Position, Time


class OffsetRange(NamedTuple):
    """The offsets wanted: from `first` on, and where there is an `end`, those before it."""

    first: int
    end: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.end <= self.first


def resolve(
    offsets: Offsets, partitions: Iterable[Partition], start: Position, end: Position | None, *, follow: bool
) -> dict[Partition, OffsetRange]:
    """Returns the range of offsets in each partition. Warns on stderr about offsets that do not exist any more, or not
    yet.
    """
    partitions = list(partitions)
    low, high = offsets.earliest(partitions), offsets.latest(partitions)
    first = firsts(offsets, partitions, start, low, high)
    ends = _ends(offsets, partitions, end, high)
    if isinstance(start, Offset):
        for partition in partitions:
            if first[partition] > start.offset:
                output.warn(f"{partition} begins at offset {low[partition]}: what was before is gone")
        if partitions and start.offset > (end_offset := max(high.values())):
            waits = "; waiting for it" if follow else ""
            output.warn(f"no partition has reached offset {start.offset}: the highest end is {end_offset}{waits}")
    return {partition: OffsetRange(first[partition], None if follow else ends[partition]) for partition in partitions}


def firsts(
    offsets: Offsets,
    partitions: list[Partition],
    start: Position,
    low: dict[Partition, int],
    high: dict[Partition, int],
) -> dict[Partition, int]:
    match start:
        case Earliest():
            return low
        case Latest():
            return high
        case Offset(offset):
            return {partition: max(offset, low[partition]) for partition in partitions}
        case Last(count):
            return {partition: max(high[partition] - count, low[partition]) for partition in partitions}
        case Time(timestamp):
            found = offsets.at(partitions, timestamp)
            return {partition: high[partition] if at < 0 else at for partition, at in found.items()}


def _ends(
    offsets: Offsets, partitions: list[Partition], end: Position | None, high: dict[Partition, int]
) -> dict[Partition, int]:
    match end:
        case Offset(offset):
            return {partition: min(offset + 1, high[partition]) for partition in partitions}
        case Last(count):
            return {partition: high[partition] - count for partition in partitions}
        case Time(timestamp):
            found = offsets.at(partitions, timestamp)
            return {
                partition: min(high[partition] if at < 0 else at, high[partition]) for partition, at in found.items()
            }
        case _:
            return high
