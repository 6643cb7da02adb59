"""The disk budget: deletes the oldest segments, of any topic, while all logs together exceed the budget.

    search   goes over all logs, some with each tick: the first segment of each is a candidate, if it may be deleted
    ages     those that are not in memory are read in a thread
    drop     the oldest candidate is deleted, and the next segment of that log becomes one, until the budget is kept

Age is by the largest timestamp. Segments that are held for a group (`backlog/holds`) go last. Never deleted are:
topics that are kept for ever, compacted or internal; active segments; segments that are not flushed, or are being
replaced. If only those are left, the broker logs that.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from tailrace.broker.background.checkpoints import Checkpointer
from tailrace.broker.background.retention import NOTES_AT_ONCE, Retention
from tailrace.broker.backlog.holds import Holds
from tailrace.broker.backlog.ledger import LossLedger, NotRecorded
from tailrace.broker.core.counters import LogSizes
from tailrace.broker.core.delayed import StartJob
from tailrace.broker.core.partition import Partition
from tailrace.broker.metadata.state import Metadata, MetadataCache
from tailrace.log.jobs import TimestampsJob
from tailrace.log.log import Log
from tailrace.log.retention import Reason
from tailrace.log.segment.segment import Segment

logger = logging.getLogger("tailrace.broker.background")

LOGS_AT_ONCE = 1000  # of a search, per tick: most are skipped quickly
DROPS_AT_ONCE = 50
SEARCH_AGAIN_MS = 10_000  # if a search has not found enough


class DiskBudget:
    def __init__(
        self,
        partitions: Mapping[Log, Partition],
        sizes: LogSizes,
        metadata: Metadata,
        retention: Retention,
        checkpointer: Checkpointer,
        start_job: StartJob,
        ledger: LossLedger,
        holds: Holds,
    ) -> None:
        self._holds = holds
        self._ledger = ledger
        self._partitions = partitions
        self._sizes = sizes
        self._configs: MetadataCache[int] = MetadataCache(metadata)
        self._retention = retention
        self._checkpointer = checkpointer
        self._start_job = start_job
        self._numbers = metadata.configs.number
        self._next_ms = 0
        self._search: Search | None = None
        self._is_exhausted = False

    def limit(self, disk_bytes: int | None) -> int:
        """Returns the limit by the current configs. A share of a disk of unknown size is no limit."""
        limit = self._configs.get("bytes", lambda: self._numbers("tailrace.disk.budget.bytes"))
        percent = self._configs.get("percent", lambda: self._numbers("tailrace.disk.budget.percent"))
        if percent < 0 or disk_bytes is None:
            return limit
        share = disk_bytes * percent // 100
        return share if limit < 0 else min(limit, share)

    def tick(self, now_ms: int, disk_bytes: int | None) -> None:
        limit = self.limit(disk_bytes)
        if not self._ledger.is_ready:
            return
        if limit < 0 or self._sizes.total <= limit:
            self._search, self._is_exhausted = None, False
            return
        self._next_ms = min(self._next_ms, now_ms + SEARCH_AGAIN_MS)  # the clock may have been set back
        if self._search is None and now_ms >= self._next_ms:
            self._search = Search(self._partitions, self._holds, now_ms)
        if self._search is not None:
            self._go_on(self._search, limit, now_ms)

    def _go_on(self, search: "Search", limit: int, now_ms: int) -> None:
        if search.is_reading or not search.go_on():
            return
        if unknown := search.of_unknown_age():
            search.is_reading = True
            self._start_job(TimestampsJob(unknown), search.ages_are_read)
            return
        self._drop(search, limit, now_ms)
        if not search.has_candidates and self._sizes.total > limit:
            self._search, self._next_ms = None, now_ms + SEARCH_AGAIN_MS
            if not self._is_exhausted:
                self._is_exhausted = True
                logger.warning(
                    "all logs take %d bytes, more than the disk budget of %d, and no segment may be deleted",
                    self._sizes.total, limit,
                )  # fmt: skip

    def _drop(self, search: "Search", limit: int, now_ms: int) -> None:
        has_dropped, until = False, self._ledger.noted + NOTES_AT_ONCE
        for _ in range(DROPS_AT_ONCE):
            if self._ledger.noted >= until or self._sizes.total <= limit or (oldest := search.oldest()) is None:
                break
            partition, reason = oldest
            assert partition.log is not None
            try:
                self._retention.delete(partition, partition.log.end_of_first_segments(1), reason, now_ms)
            except NotRecorded:  # the ledger has logged it
                search.add(partition.log)  # it is still the oldest
                break
            search.add(partition.log)
            has_dropped = True
        if has_dropped:
            self._checkpointer.when_offsets_saved()


class Search:
    """A search over all logs for the oldest segments that may be deleted."""

    def __init__(self, partitions: Mapping[Log, Partition], holds: Holds, now_ms: int) -> None:
        self._partitions = partitions
        self._holds = holds
        self._now_ms = now_ms
        self._todo = deque(partitions)
        self._known: list[tuple[bool, int, int, Log, Segment]] = []  # those that are held for a group come last
        self._unknown: list[Log] = []
        self._asked: set[Segment] = set()
        self._number = 0
        self.is_reading = False

    def go_on(self) -> bool:
        """Looks at more logs. Returns whether all have been looked at."""
        for _ in range(min(LOGS_AT_ONCE, len(self._todo))):
            self.add(self._todo.popleft())
        return not self._todo

    def add(self, log: Log) -> None:
        """Adds the log's first segment as a candidate, if it may be deleted."""
        reason = self._reason(log)
        if reason is None:
            return
        segment, self._number = log.oldest_segment, self._number + 1
        age = segment.largest_timestamp
        if age is not None:
            heappush(self._known, (reason is Reason.HOLD_CAP, age, self._number, log, segment))
        elif segment not in self._asked:  # if it was, its age could not be read
            self._unknown.append(log)

    def _reason(self, log: Log) -> Reason | None:
        """Returns the reason for which the first segment may be deleted; None if it may not."""
        partition = self._partitions.get(log)
        if partition is None or not self._may_go(partition, log):
            return None
        return self._holds.under_budget(partition, log, self._now_ms)

    def _may_go(self, partition: Partition, log: Log) -> bool:
        if not log.sealed_segments or log.offline is not None or log.replacing is not None:
            return False
        topic, config = partition.topic, partition.topic.config
        if topic.is_internal or config.needs_keys or not config.deletes:
            return False
        is_for_ever = config.log.retention_ms < 0 and config.log.retention_bytes < 0
        return not is_for_ever and log.end_of_first_segments(1) <= log.high_watermark

    def of_unknown_age(self) -> Sequence[Segment]:
        segments = [log.oldest_segment for log in self._unknown]
        self._asked.update(segments)
        return segments

    def ages_are_read(self) -> None:
        self.is_reading = False
        unknown, self._unknown = self._unknown, []
        for log in unknown:
            self.add(log)

    @property
    def has_candidates(self) -> bool:
        return bool(self._known or self._unknown or self._todo)

    def oldest(self) -> tuple[Partition, Reason] | None:
        """Returns the partition with the oldest first segment, and the reason for deleting it; None if more ages have
        to be read first.
        """
        while self._known and not self._unknown:
            was_held, _, _, log, segment = heappop(self._known)
            reason = self._reason(log)
            if reason is None or log.oldest_segment is not segment:
                continue
            if reason is Reason.HOLD_CAP and not was_held:
                self.add(log)  # a group has gone back meanwhile: others first
            else:
                return self._partitions[log], reason
        return None
