"""Leader epochs: which range of the log was written in which epoch, in Kafka's `leader-epoch-checkpoint` format.

The epoch rises with every unclean start, so that a client can distinguish the record that it read at an offset before a
crash from another one that was written there after it. The first line of the file is the version (0), the second the
count; each other line is `epoch offset`.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tailrace.log.files.checkpoints import CorruptCheckpoint, decode_lines, encode_lines

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class LeaderEpochs:
    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self._starts = starts or []

    @property
    def latest(self) -> int:
        return self._starts[-1].epoch if self._starts else UNDEFINED_EPOCH

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochs) and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]

    def assign(self, epoch: int, offset: int) -> bool:
        """Starts `epoch` at `offset`. Returns False, and changes nothing, unless it is larger than the latest one."""
        if epoch <= self.latest:
            return False
        # Drops epochs in which nothing was written. A new list, as other threads may be reading the old one.
        self._starts = [*(start for start in self._starts if start.start_offset < offset), EpochStart(epoch, offset)]
        return True

    def replace(self, other: "LeaderEpochs") -> None:
        """Takes over the epochs of `other`, in place: all references to this object see them."""
        self._starts = list(other._starts)

    def range_at(self, offset: int) -> tuple[int | None, int | None]:
        """Returns the epoch of `offset`, if known, and the offset where the next epoch begins, if any."""
        starts = self._starts
        number = bisect_right(starts, offset, key=lambda start: start.start_offset)
        following = starts[number].start_offset if number < len(starts) else None
        return (starts[number - 1].epoch if number else None), following

    def end_of(self, epoch: int, log_end: int) -> EpochEnd:
        """Returns where the largest epoch not above `epoch` ends, as OffsetForLeaderEpoch responds."""
        starts = self._starts
        if epoch == UNDEFINED_EPOCH or not starts or epoch > starts[-1].epoch:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == starts[-1].epoch:
            return EpochEnd(epoch, log_end)
        number = bisect_right(starts, epoch, key=lambda start: start.epoch)
        if number == 0:
            return EpochEnd(epoch, starts[0].start_offset)
        return EpochEnd(starts[number - 1].epoch, starts[number].start_offset)

    def truncate(self, end: int) -> None:
        """Drops the epochs that begin at `end` or beyond."""
        self._starts = [start for start in self._starts if start.start_offset < end]

    def encode(self) -> bytes:
        return encode_lines(f"{start.epoch} {start.start_offset}" for start in self._starts)

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        """Decodes a checkpoint. Raises CorruptCheckpoint if it is truncated, or its epochs do not rise."""
        try:
            starts = [EpochStart(int(epoch), int(offset)) for epoch, offset in decode_lines(data, fields=2)]
        except ValueError as error:
            raise CorruptCheckpoint(str(error)) from None
        if any(start.epoch < 0 or start.start_offset < 0 for start in starts):
            raise CorruptCheckpoint("an epoch or an offset is below 0")
        for earlier, later in pairwise(starts):
            if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
                raise CorruptCheckpoint(f"epoch {later.epoch} at {later.start_offset} follows {earlier}")
        return cls(starts)
