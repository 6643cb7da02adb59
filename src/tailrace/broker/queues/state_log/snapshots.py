"""Writes states anew, and cuts the log, without holding the loop: some of a state in each turn.

A state that fits into one record is a snapshot. A larger one is a partial snapshot, and updates with the rest in turns;
each is true at the moment at which it is written, so that what changes meanwhile needs no special treatment. The last
one completes the snapshot (`records`).
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Pause, StartJob
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.partition.states import StateUpdate
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.broker.queues.state_log.conversion import value_of
from tailrace.broker.queues.state_log.records import ShareChange, ShareSnapshotted, ShareUpdated

if TYPE_CHECKING:
    from tailrace.broker.queues.coordinator import QueueCoordinator

CUT_MS = 300_000
CUT_BYTES = 16 << 20  # of records written since the last cut
RANGES_OF_A_TURN = 1_000
RANGES_OF_A_RECORD = 3_000  # 60 KB
RANGES_OF_A_SNAPSHOT = 3_000  # that is whole
KEYS_OF_A_TURN = 50


class Snapshots:
    def __init__(self, queues: "QueueCoordinator", start_job: StartJob) -> None:
        self._queues = queues
        self._start_job = start_job
        self._work: Generator[None, None, None] | None = None
        self._next_cut_ms: int | None = None
        self._bytes_at_cut = 0

    def tick(self, steady_ms: int) -> None:
        needed = self._queues.needed
        if self._next_cut_ms is None:
            self._next_cut_ms, self._bytes_at_cut = steady_ms + CUT_MS, needed.bytes
        if steady_ms >= self._next_cut_ms or needed.bytes - self._bytes_at_cut > CUT_BYTES:
            self._next_cut_ms = steady_ms + CUT_MS
            needed.find_stale()
            self._cut()
        if needed.due and self._work is None:
            self._work = self._write_all()
            self._go_on()

    def _cut(self) -> None:
        log, needed = self._queues.log, self._queues.needed
        if log.log is not None:
            log.cut(needed.cut(log.log.high_watermark), self._queues.now_ms)
        self._bytes_at_cut = needed.bytes

    def _go_on(self) -> None:
        assert self._work is not None
        try:
            next(self._work)
        except (StopIteration, NotSaved):  # the latter: the next tick tries again
            self._work = None
        else:
            self._start_job(Pause(), self._go_on)

    def _write_all(self) -> Generator[None, None, None]:
        """Raises NotSaved."""
        due = self._queues.needed.due
        while due:
            for key in list(due)[:KEYS_OF_A_TURN]:
                yield from self._write(key)
                due.pop(key, None)
            yield

    def _write(self, key: ShareKey) -> Generator[None, None, None]:
        queue = self._queues.find(*key)
        if queue is None or queue.state is None:
            return
        state = queue.state
        pieces = state.snapshot(RANGES_OF_A_TURN)
        first, second = next(pieces), next(pieces, None)
        if second is None and len(first.ranges) <= RANGES_OF_A_SNAPSHOT:
            self._append(ShareSnapshotted(key, self._queues.snapshot_value(queue, first)))
            return
        begun = self._queues.snapshot_value(queue, StateUpdate(first.start_offset), is_partial=True)
        before = self._queues.needed.epoch(key)
        self._append(ShareSnapshotted(key, begun), *_updates(queue, first._replace(start_offset=-1), before))
        while second is not None:
            self._append(*_updates(queue, second, before))
            yield
            if queue.is_gone or queue.state is not state:
                return  # a later snapshot has taken its place
            second = next(pieces, None)
        self._append(*_updates(queue, StateUpdate(), begun.snapshot_epoch))

    def _append(self, *changes: ShareChange) -> None:
        self._queues.append(changes)


def _updates(queue: QueuePartition, update: StateUpdate, epoch: int) -> list[ShareChange]:
    return [
        ShareUpdated(queue.key, value_of(piece, epoch, leader_epoch=-1)) for piece in update.pieces(RANGES_OF_A_RECORD)
    ]
