"""Carries out retention by age and by size. All deletions of records, for any reason, go through here.

Every `log.retention.check.interval.ms` all logs are checked, a few with each tick. Segments that `log/retention.py`
selects are deleted, whole, from the front: the start offset moves, and once that is on disk the files are removed
(`Checkpointer.when_offsets_saved`). Each deletion is logged and counted.

    age not in memory   the segment's checksum file is read in a thread, and its log is checked again
    all has expired     the active segment is rolled; once that and the producers are saved, it is deleted, too
    held for a group    nothing is deleted that a group has yet to read, up to a limit (`backlog/holds`)
    groups not read yet nothing is deleted: the loss ledger could not name the groups that lose records
    the clock jumps     nothing is deleted until the clock is trusted again (`wall_clock`)
    being replaced      names of its segments are about to change: the log is checked again with the next tick
    never touched       internal topics, and those whose cleanup.policy has no `delete`; logs that are offline
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice

from tailrace.broker.background.checkpoints import Checkpointer
from tailrace.broker.backlog.holds import Holds
from tailrace.broker.backlog.ledger import BROKER, Actor, LossLedger, NotRecorded
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.counters import Counters, LogSizes
from tailrace.broker.core.delayed import StartJob
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.wall_clock import WallClock
from tailrace.facts.losses import LossReason
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.jobs import TimestampsJob
from tailrace.log.layout.errors import StorageError
from tailrace.log.log import Log
from tailrace.log.retention import Reason, deletable, facts_of, is_age_missing, limits_of
from tailrace.log.segment.segment import Segment

logger = logging.getLogger("tailrace.broker.background")

LOGS_AT_ONCE = 100  # per tick, some microseconds each; or one in a hundred
AGES_AT_ONCE = 50  # segments of a log
NOTES_AT_ONCE = 1000  # of losses, per tick, if they are not of a single deletion: some 12 µs each


class Retention:
    def __init__(
        self,
        partitions: Mapping[Log, Partition],
        sizes: LogSizes,
        configs: BrokerConfigs,
        checkpointer: Checkpointer,
        flushes: FlushQueue,
        counters: Counters,
        start_job: StartJob,
        clock: WallClock,
        ledger: LossLedger,
        holds: Holds,
        start_moved: Callable[[Partition], None],
    ) -> None:
        """`partitions` are those that have a log: a live view of the broker's own. `start_moved` is called after each
        deletion.
        """
        self._partitions = partitions
        self._sizes = sizes
        self._checkpointer = checkpointer
        self._flushes = flushes
        self._counters = counters
        self._start_job = start_job
        self._clock = clock
        self._ledger = ledger
        self._holds = holds
        self._start_moved = start_moved
        self._interval_ms = configs.number("log.retention.check.interval.ms")
        self._next_ms: int | None = None
        self._due: deque[Log] = deque()
        self._share = LOGS_AT_ONCE
        self._again: dict[Log, None] = {}
        self._ages_wanted: list[tuple[Log, Sequence[Segment]]] = []
        self._is_reading_ages = False

    @property
    def interval_ms(self) -> int:
        return self._interval_ms

    @property
    def next_check_ms(self) -> int:
        """When all logs are checked next. Checks are `interval_ms` apart."""
        return self._next_ms or 0

    def tick(self, now_ms: int) -> None:
        if self._next_ms is None:
            self._next_ms = now_ms + self._interval_ms
        self._next_ms = min(self._next_ms, now_ms + self._interval_ms)  # the clock may have been set back
        if not self._clock.is_trusted or not self._ledger.is_ready:
            return
        if now_ms >= self._next_ms and not self._due:
            self._next_ms += self._interval_ms * (1 + (now_ms - self._next_ms) // self._interval_ms)
            self._due.extend(self._partitions)
            self._share = max(LOGS_AT_ONCE, len(self._due) // 100)
        if self._again:
            again, self._again = self._again, {}
            self._check_each(again, now_ms)
        if self._due:
            self._check_each([self._due.popleft() for _ in range(min(self._share, len(self._due)))], now_ms)

    def _check_each(self, logs: Iterable[Log], now_ms: int, known: Collection[Segment] = ()) -> None:
        """`known` are the segments whose ages were just read."""
        has_deleted, until = False, self._ledger.noted + NOTES_AT_ONCE
        for log in logs:
            partition = self._partitions.get(log)
            if partition is None or log.offline is not None:
                continue
            if log.replacing is not None or self._ledger.noted >= until:
                self._again[log] = None
                continue
            self._sizes.measure(log)  # corrects the total, whatever has changed
            if partition.topic.config.deletes and not partition.topic.holds_state:
                with suppress(NotRecorded):  # the ledger has logged it; the log is checked again
                    has_deleted |= self._check(partition, log, now_ms, known)
        if has_deleted:
            self._checkpointer.when_offsets_saved()
        self._read_ages(now_ms)

    # One log

    def _check(self, partition: Partition, log: Log, now_ms: int, known: Collection[Segment]) -> bool:
        """Deletes expired segments. Returns whether any was deleted."""
        keep = limits_of(log)
        reasons = self._holds.allowed(partition, log, deletable(facts_of(log), keep, now_ms), now_ms)
        first_kept = next(islice(facts_of(log), len(reasons), None), None)
        if first_kept is None:
            self._roll(log)
            return False
        if reasons and first_kept.base_offset == log.end_offset and not _has_saved_producers(log):
            # The rest is empty: a start finds its producers in a snapshot alone. Earlier snapshots may be deleted.
            self._again[log] = None
            reasons = reasons[: sum(segment.end_offset <= log.recovery_point for segment in facts_of(log))]
        for reason, group in groupby(reasons):
            self.delete(partition, log.end_of_first_segments(len(list(group))), reason, now_ms)
        if is_age_missing(first_kept, keep) and log.oldest_segment not in known:
            unknown = log.segments_of_unknown_age(AGES_AT_ONCE)
            self._ages_wanted.append((log, unknown))
        return bool(reasons)

    def _roll(self, log: Log) -> None:
        """Rolls the log, because even its active segment has expired. The log is checked again with the next tick."""
        try:
            log.roll()
        except StorageError as error:
            logger.warning("cannot delete expired records of %s yet: %s", log.directory, error)
            return
        self._flushes.request_checkpoint(log)
        self._again[log] = None

    # Any deletion

    def delete(self, partition: Partition, before: int, reason: Reason, now_ms: int, actor: Actor = BROKER) -> None:
        """Deletes all records of a partition below `before`; it must have a log. The loss is noted first. The files go
        when both are on disk: the caller calls `Checkpointer.when_offsets_saved`. Raises OffsetOutOfRange, and
        NotRecorded, and then nothing was deleted.
        """
        log = partition.log
        assert log is not None
        start = int(log.start_offset)
        if reason is not Reason.START:
            self._ledger.note_deletion(partition, before, LossReason(reason), now_ms, actor)
        gone = log.delete_before(max(start, before))
        size = sum(segment.size for segment in gone)
        self._counters.deleted(partition.topic.name, reason, size, len(gone))
        self._sizes.measure(log)
        self._sizes.changed[log] = None
        if start >= before and not gone:
            return
        first = start if start < before else gone[0].base_offset
        logger.info(
            "deleted from %s: offsets %d to %d, %d bytes in %d segments (%s)",
            partition.name, first, before - 1, size, len(gone), reason,
        )  # fmt: skip
        self._start_moved(partition)
        if partition.waiting_fetches:
            partition.moved()  # a fetch may wait at an offset that was deleted

    # Ages that are not in memory

    def _read_ages(self, now_ms: int) -> None:
        if not self._ages_wanted or self._is_reading_ages:
            return
        self._is_reading_ages = True
        wanted, self._ages_wanted = self._ages_wanted, []
        segments = [segment for _, some in wanted for segment in some]

        def finish() -> None:
            self._is_reading_ages = False
            self._check_each([log for log, _ in wanted], now_ms, set(segments))

        self._start_job(TimestampsJob(segments), finish)


def _has_saved_producers(log: Log) -> bool:
    """Whether a snapshot of the producers at the end of the log is on disk, and no job is about to replace it."""
    return log.is_idle and not log.snapshots_due and log.recovery_point >= log.end_offset
