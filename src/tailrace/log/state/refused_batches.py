"""The batches of unknown idempotent producers that were refused with a retriable error, remembered for a while.

A log accepts any first sequence of a producer that it does not know, because the producer may have expired. If the
first batch of such a producer is refused and the next one, already in flight, is accepted, the client takes the
acknowledgement of the second for one of the first, which is stored nowhere. So the refused sequence is due until

    the log knows the producer: the batch was appended, or one of another epoch, or a transaction marker
    no batch of the producer has been refused for REMEMBERED_MS
    REFUSED_BATCHES_MAX others were refused later (counted in `dropped`)

All of it is lost at a restart. That also closes the connections with the batches in flight, and clients send those
again in order.
"""

from collections import OrderedDict
from typing import NamedTuple

from tailrace.log.layout.names import TopicPartition

REFUSED_BATCHES_MAX = 10_000
REMEMBERED_MS = 600_000
_SEQUENCES = 1 << 31  # sequences wrap at this number


class RefusedBatch(NamedTuple):
    epoch: int
    sequence: int
    steady_ms: int


class RefusedBatches:
    """The refused batches of one broker: at most one of each producer and partition. Times are of a steady clock."""

    def __init__(self, limit: int = REFUSED_BATCHES_MAX) -> None:
        self.dropped = 0
        self._limit = limit
        self._batches: OrderedDict[tuple[TopicPartition, int], RefusedBatch] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._batches)

    def of(self, partition: TopicPartition) -> "PartitionRefusals":
        return PartitionRefusals(self, partition)

    def remember(self, partition: TopicPartition, producer_id: int, epoch: int, sequence: int, steady_ms: int) -> None:
        """Makes `sequence` due. Of several refused batches of one epoch the earliest is due; an older epoch is
        ignored.
        """
        key = partition, producer_id
        before = self._batches.get(key)
        if before is not None and before.epoch > epoch:
            return
        if before is not None and before.epoch == epoch and _precedes(before.sequence, sequence):
            sequence = before.sequence
        self._batches[key] = RefusedBatch(epoch, sequence, steady_ms)
        self._batches.move_to_end(key)
        if len(self._batches) > self._limit:
            self._batches.popitem(last=False)
            self.dropped += 1

    def due(self, partition: TopicPartition, producer_id: int, epoch: int) -> int | None:
        """Returns the only sequence that the producer may begin with, or None if it may begin with any."""
        found = self._batches.get((partition, producer_id))
        return found.sequence if found is not None and found.epoch == epoch else None

    def forget(self, partition: TopicPartition, producer_id: int) -> None:
        self._batches.pop((partition, producer_id), None)

    def expire(self, steady_ms: int) -> None:
        while self._batches:
            oldest = next(iter(self._batches.values()))
            if steady_ms - oldest.steady_ms < REMEMBERED_MS:
                return
            self._batches.popitem(last=False)


class PartitionRefusals:
    """The refused batches of one partition, as its producer state uses them."""

    __slots__ = ("_batches", "_partition")

    def __init__(self, batches: RefusedBatches, partition: TopicPartition) -> None:
        self._batches = batches
        self._partition = partition

    def due(self, producer_id: int, epoch: int) -> int | None:
        return self._batches.due(self._partition, producer_id, epoch)

    def forget(self, producer_id: int) -> None:
        self._batches.forget(self._partition, producer_id)


def _precedes(first: int, second: int) -> bool:
    """Returns whether a client has used the sequence `first` before `second`: it is less than half of all sequences
    behind.
    """
    return (second - first) % _SEQUENCES < _SEQUENCES // 2
