"""The values that share partitions are made of: states of records, ranges of offsets, and updates."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple

UNCHANGED = -1  # the start offset of an update that does not move it
COUNT_MAX = 31  # of deliveries: more than a group may have
OFFSET_MAX = (1 << 63) - 1


class RecordState(IntEnum):
    """Kafka's numbers. Acquired is held in memory only: on disk such a record is what it was before."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


TERMINAL = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))


class AckType(IntEnum):
    GAP = 0  # the member has found no record at the offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class EndReason(StrEnum):
    """Why a record ends without having been accepted."""

    REJECTED = "rejected"  # by a member
    ATTEMPTS = "attempts"  # delivered as often as the group allows
    EXPIRED = "expired"
    LOST = "lost"  # its log begins after it now
    ABORTED = "aborted"  # with its transaction
    PURGED = "purged"
    GAP = "gap"  # there is no record for members at the offset


class OffsetRange(NamedTuple):
    """Offsets from `first` to `last`, both inclusive."""

    first: int
    last: int


class StateRange(NamedTuple):
    """Records in one state, which were delivered that often."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class DeadLetterPosition(NamedTuple):
    """Where the dead letters of a share partition lie that it still has as Archiving, if they are written: at this
    offset of a dead-letter topic, or behind it.
    """

    topic_id: bytes
    partition: int
    offset: int


class StateUpdate(NamedTuple):
    """A change of what is persisted of a share partition, as the state log has it."""

    start_offset: int = UNCHANGED
    ranges: Sequence[StateRange] = ()
    complete_count: int = UNCHANGED  # how many records after the start are finished, with this update
    dead_letters: DeadLetterPosition | None = None  # None if it is unchanged

    def pieces(self, ranges_max: int) -> "Iterator[StateUpdate]":
        """Yields updates that together do the same, of at most `ranges_max` ranges each. The last one moves the
        start.
        """
        last = max(0, (len(self.ranges) - 1) // ranges_max * ranges_max)
        for n in range(0, last, ranges_max):
            yield StateUpdate(ranges=self.ranges[n : n + ranges_max])
        yield self._replace(ranges=self.ranges[last:])


class AckBatch(NamedTuple):
    """What a member says of a range: one type for all of it, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """A range that a member has got, and the number of this delivery."""

    first: int
    last: int
    delivery_count: int


class Ended(NamedTuple):
    """Records that end without having been accepted. With `is_dead_letter` they wait to be written to the dead-letter
    topic; else this is the end of them.
    """

    first: int
    last: int
    delivery_count: int
    reason: EndReason
    is_dead_letter: bool = False


class Decision(NamedTuple):
    """What is to be appended to the state log, and then replayed; and what it means."""

    update: StateUpdate | None  # None if nothing is to be written
    ended: Sequence[Ended] = ()
    accepted: int = 0  # records
    released: int = 0  # records that will be delivered again
    renewed: int = 0  # records whose lock has been extended, which is not persisted

    @property
    def dead_letters(self) -> list[Ended]:
        return [ended for ended in self.ended if ended.is_dead_letter]


NO_DECISION = Decision(None)


def merged(ranges: Iterable[StateRange]) -> list[StateRange]:
    """Joins neighbours of the same state and count. The ranges are in order."""
    joined: list[StateRange] = []
    for one in ranges:
        if joined:
            last = joined[-1]
            if last.last + 1 == one.first and last.state is one.state and last.delivery_count == one.delivery_count:
                joined[-1] = last._replace(last=one.last)
                continue
        joined.append(one)
    return joined
