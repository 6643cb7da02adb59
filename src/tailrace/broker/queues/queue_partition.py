"""A share partition of the running broker: its state, the partition of the topic, and the fetches that wait for it."""

from typing import TYPE_CHECKING, Protocol

from tailrace.broker.backlog.ledger import UnfinishedRange
from tailrace.broker.core.partition import Partition
from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.outcomes import Outcomes
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import Decision, StateUpdate

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.queues.delivery.inspection import Inspections


class WaitingShareFetch(Protocol):
    def look_again(self) -> None:
        """There are records that may be acquired, or the partition is gone."""


class QueuePartition:
    __slots__ = (
        "_broker",
        "created_ms",
        "epoch",
        "fetches",
        "inspections",
        "is_gone",
        "is_reading",
        "is_starting",
        "key",
        "moved_ms",
        "oldest",
        "outcomes",
        "partition",
        "put_off",
        "state",
    )

    def __init__(
        self, broker: "Broker", key: ShareKey, partition: Partition, state: SharePartition | None, now_ms: int
    ) -> None:
        self._broker = broker
        self.key = key
        self.partition = partition
        self.state = state  # None while it is not known yet where the group begins
        self.epoch = 0  # of its group, when it was given a state
        self.created_ms = now_ms
        self.moved_ms = now_ms  # when a record was finished last
        self.fetches: dict[WaitingShareFetch, None] = {}  # in the order in which they came
        self.is_reading = False  # a thread reads records for a fetch: others do not look meanwhile
        self.is_starting = False  # a thread finds out where the group begins
        self.is_gone = False
        self.outcomes = Outcomes()
        self.inspections: Inspections | None = None  # of batches whose records were decoded, if any had to be
        self.put_off: tuple[int, int] | None = None  # the offset of a record for later, and when to look at it again
        self.oldest: tuple[int, int] | None = None  # an offset, and the timestamp there: see `facts`

    @property
    def place(self) -> tuple[bytes, int]:
        return self.key.topic_id, self.key.partition

    def end_for(self, *, reads_committed: bool) -> int:
        """The end of what members may read."""
        return self.partition.last_stable_offset if reads_committed else self.partition.high_watermark

    def has_more(self, now_ms: int, *, reads_committed: bool) -> bool:
        """Whether a fetch would find anything."""
        if self.is_gone:
            return True
        if self.state is None or self.is_reading:
            return False
        available = self.state.next_available(now_ms)
        if self.put_off is not None and available is not None and available.first == self.put_off[0]:
            return now_ms >= self.put_off[1]
        return available is not None and available.first < self.end_for(reads_committed=reads_committed)

    @property
    def next_deadline(self) -> int | None:
        """When a lock runs out, or a record is to be delivered, at the earliest."""
        deadline = self.state.next_deadline if self.state is not None else None
        if self.put_off is None:
            return deadline
        return self.put_off[1] if deadline is None else min(deadline, self.put_off[1])

    def unfinished_before(self, before: int) -> UnfinishedRange:
        """Returns what the group has not finished before an offset."""
        if self.state is None:
            return UnfinishedRange(self.partition, before, before, 0)
        return UnfinishedRange(self.partition, self.state.start_offset, before, self.state.unfinished_before(before))

    def persisted_before(self, end: int) -> StateUpdate:
        """Returns what is persisted of the records before an offset."""
        state = self.state
        assert state is not None
        ranges = [
            one._replace(last=min(one.last, end - 1))
            for update in state.snapshot()
            for one in update.ranges
            if one.first < end
        ]
        return StateUpdate(min(state.start_offset, end), ranges, dead_letters=state.dead_letters)

    # Waiting

    def wait(self, fetch: WaitingShareFetch) -> None:
        if not self.fetches:
            self.partition.waiting_fetches.add(self)
        self.fetches[fetch] = None
        if self.partition.has_unflushed and self.partition.log is not None:
            self._broker.flushes.request(self.partition.log)

    def forget(self, fetch: WaitingShareFetch) -> None:
        self.fetches.pop(fetch, None)
        if not self.fetches:
            self.partition.waiting_fetches.discard(self)

    def partition_moved(self) -> None:
        """There is more to read in the log, or it is gone."""
        if self.fetches:
            self._broker.queues.wake(self)


Decided = tuple[QueuePartition, Decision]
"""A decision on a share partition."""
