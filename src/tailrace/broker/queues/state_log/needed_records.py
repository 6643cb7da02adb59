"""Which records of the state log the share partitions need: when a state is due to be written anew, and where the log
may be cut. Pure.

    due      the updates of a state outweigh it: it is written anew, as a snapshot
    stale    the log is mostly records that no state needs. States that were not written for the longest time hold its
             start back: they are written anew, too
    cut      before the last snapshot of each state, as far as these are on disk

So the log has at most a few times the bytes of all states, however long it has been written to.
"""

from collections import deque

from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.state_log.records import ShareChange, ShareSnapshotted

UPDATES_MIN = 500  # of a state, before they count: as in Kafka
SPARE_BYTES = 1 << 20  # of records that no state needs
SAMPLE_BYTES = 128 << 10


class NeededRecords:
    """Of one share partition: those from an offset on."""

    __slots__ = (
        "complete_at",
        "epoch",
        "from_offset",
        "next_epoch",
        "next_from",
        "snapshot_bytes",
        "updates",
        "weight",
    )

    def __init__(self, from_offset: int) -> None:
        self.from_offset = from_offset  # where its last complete snapshot begins, that is known to be on disk
        self.epoch = 0  # of the last complete snapshot
        self.next_from: int | None = None  # where a later snapshot begins
        self.next_epoch = 0
        self.complete_at: int | None = None  # the offset of the record that completes that
        self.snapshot_bytes = 0
        self.weight = 0  # bytes of updates behind it
        self.updates = 0

    def begin(self, offset: int, epoch: int, size: int) -> None:
        """A snapshot begins."""
        self.next_from, self.next_epoch, self.complete_at = offset, epoch, None
        self.snapshot_bytes, self.weight, self.updates = size, 0, 0

    def complete(self, offset: int) -> None:
        self.complete_at, self.epoch = offset, self.next_epoch
        self.snapshot_bytes += self.weight
        self.weight = self.updates = 0

    def settle(self, high_watermark: int) -> int:
        """Returns from where on its records are needed, when all before this offset are on disk."""
        if self.next_from is not None and self.complete_at is not None and self.complete_at < high_watermark:
            self.from_offset, self.next_from, self.complete_at = self.next_from, None, None
        return self.from_offset

    @property
    def is_being_written(self) -> bool:
        """Whether a partial snapshot is not complete yet."""
        return self.next_from is not None and self.complete_at is None

    @property
    def is_due(self) -> bool:
        return self.updates >= UPDATES_MIN and self.weight > 2 * self.snapshot_bytes and not self.is_being_written


class NeededLog:
    """Of all share partitions."""

    def __init__(self) -> None:
        self.due: dict[ShareKey, None] = {}  # states to be written anew, in this order
        self._needed: dict[ShareKey, NeededRecords] = {}
        self._bytes = 0  # of all records in the log
        self._dropped = 0  # of those that were cut
        self._samples: deque[tuple[int, int]] = deque()  # an offset, and the bytes of all records before it

    def __len__(self) -> int:
        return len(self._needed)

    def epoch(self, key: ShareKey) -> int:
        """The epoch of the last complete snapshot of a state, which updates carry; -1 if there is none."""
        known = self._needed.get(key)
        return known.epoch if known is not None else -1

    def next_epoch(self, key: ShareKey) -> int:
        """The epoch of the next snapshot of a state."""
        known = self._needed.get(key)
        return max(known.epoch, known.next_epoch) + 1 if known is not None else 0

    @property
    def bytes(self) -> int:
        """The bytes of all records in the log, roughly."""
        return self._bytes - self._dropped

    @property
    def needed_bytes(self) -> int:
        return sum(known.snapshot_bytes + known.weight for known in self._needed.values())

    def note(self, change: ShareChange, offset: int, size: int) -> None:
        """A record was appended, or read at the start. Offsets grow."""
        if not self._samples or self._bytes - self._samples[-1][1] >= SAMPLE_BYTES:
            self._samples.append((offset, self._bytes))
        self._bytes += size
        if isinstance(change, ShareSnapshotted):
            self._note_snapshot(change, offset, size)
            return
        known = self._needed.get(change.key)
        if known is None:
            return  # of a state that was deleted, and whose log was cut
        known.weight += size
        known.updates += 1
        if known.is_being_written and change.value.snapshot_epoch == known.next_epoch:
            known.complete(offset)
        if known.is_due:
            self.due[change.key] = None

    def _note_snapshot(self, change: ShareSnapshotted, offset: int, size: int) -> None:
        key, value = change
        if value is None:
            self._needed.pop(key, None)
            self.due.pop(key, None)
            return
        known = self._needed.get(key)
        if known is None:
            known = self._needed[key] = NeededRecords(offset)
        known.begin(offset, value.snapshot_epoch, size)
        if not value.is_partial:
            known.complete(offset)

    def find_stale(self) -> None:
        """Makes states due that hold the start of the log back, if it has far more records than are needed."""
        needed = self.needed_bytes
        kept = needed + SPARE_BYTES
        if self.bytes <= kept + needed:
            return
        before = next((offset for offset, until in reversed(self._samples) if self._bytes - until > kept), 0)
        for key, known in self._needed.items():
            if (known.from_offset if known.next_from is None else known.next_from) < before:
                self.due[key] = None

    def cut(self, high_watermark: int) -> int:
        """Returns the offset before which no record is needed, when all before the high watermark are on disk."""
        before = min((known.settle(high_watermark) for known in self._needed.values()), default=high_watermark)
        while self._samples and self._samples[0][0] < before:
            self._dropped = self._samples[0][1]
            if len(self._samples) < 2 or self._samples[1][0] > before:
                break
            self._samples.popleft()
        return before
