"""Publishes the segments of partitions in `__tailrace_segments`, for forecasts of when unread records will be deleted.

A log is looked at when its segments, its start or its configs have changed (`LogSizes.changed`), some with each tick,
and each at most once a second. The records of one tick are appended together. Logs that do not change cost nothing.

    a start     a thread reads what was published before: only what differs is published again
    ages        those that are not in memory are read in a thread, before the partition is published
    a deletion  of a topic removes the records of its partitions
    a failure   to append is logged, and repeated later

The format is in `facts/segments`. Internal and service topics are not described.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.configs.registry import TopicConfig
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import SEGMENTS_TOPIC, Topic
from tailrace.broker.metadata.internal_topics import InternalTopic, LastRecordsJob
from tailrace.facts import document
from tailrace.facts import segments as format_of
from tailrace.facts.document import UnreadableFact
from tailrace.facts.segments import PartitionFact, SegmentFact
from tailrace.log.jobs import TimestampsJob
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.log.retention import facts_of
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.backlog")

INTERVAL_MS = 1000  # between two records of a partition
LOGS_AT_ONCE = 500  # looked at per tick
CONFIGS_AT_ONCE = 2000  # compared per tick
RECORDS_AT_ONCE = 100  # written per tick
SEGMENTS_AT_ONCE = 3000  # written per tick, if they are not of a single partition
SEGMENTS_MAX = 1000  # of a partition; more are joined
AGES_AT_ONCE = 50  # segments of a log
RETRY_MS = 10_000
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}


class Published(NamedTuple):
    """The facts in the last record of a partition, and when it was written."""

    steady_ms: int
    config: TopicConfig
    budget: int


class SegmentPublisher:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._changed = broker.sizes.changed
        self._topic = InternalTopic(broker, SEGMENTS_TOPIC, 1, lambda: COMPACTED)
        self._earlier: dict[bytes, int] | None = None  # fingerprints of what was published before this start
        self._is_reading = False
        self._must_tell_ticks = False  # those of retention have moved with this start
        self._published: dict[Log, Published] = {}
        self._due: dict[Log, None] = {}
        self._gone: deque[bytes] = deque()  # keys of deleted partitions
        self._unaged: dict[Log, None] = {}  # logs that wait for a thread to read ages
        self._aged: set[Log] = set()
        self._is_reading_ages = False
        self._revision = broker.metadata.revision
        self._to_compare: list[Log] = []
        self._retry_ms = 0
        self._has_failed = False

    def tick(self, now_ms: int, steady_ms: int) -> None:
        if self._earlier is None:
            self._read_earlier()
        if self._earlier is None or self._broker.groups_are_loading:
            return
        if self._changed:
            self._due.update(self._changed)
            self._changed.clear()
        self._compare_configs()
        if (self._due or self._gone) and steady_ms >= self._retry_ms:
            self._publish(now_ms, steady_ms, self._earlier)
            self._read_ages()

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        """Notes that these topics are no longer in the metadata. Called while their partitions still have logs."""
        for topic in topics:
            for partition in topic.touched:
                if partition.log is None:
                    continue
                key = format_of.key_of(topic.topic_id.hex(), partition.index)
                was_published = self._published.pop(partition.log, None) is not None
                if was_published or (self._earlier and self._earlier.pop(key, None) is not None):
                    self._gone.append(key)
                self._aged.discard(partition.log)

    # What was published before this start

    def _read_earlier(self) -> None:
        if self._is_reading:
            return
        logs = list(self._topic.logs)
        if not logs:
            self._earlier = {}
            return
        self._is_reading = True
        job = PublishedFactsJob(logs)
        self._broker.start_job(job, lambda: self._have_read(job))

    def _have_read(self, job: "PublishedFactsJob") -> None:
        if job.error is not None:
            logger.warning("cannot read %s: %s. All of it is published again", SEGMENTS_TOPIC, job.error)
        topics = self._broker.metadata.topics_by_id
        self._earlier = {key: found.fingerprint for key, found in job.found.items() if found.topic_id in topics}
        self._gone.extend(key for key, found in job.found.items() if found.topic_id not in topics)
        self._must_tell_ticks = bool(self._earlier)

    # Changes of configs

    def _compare_configs(self) -> None:
        """Finds published partitions whose configs have changed: goes over all after each change of metadata."""
        if not self._to_compare:
            if self._revision == self._broker.metadata.revision:
                return
            self._revision = self._broker.metadata.revision
            self._to_compare = list(self._published)
        budget = self._budget()
        for log in self._to_compare[-CONFIGS_AT_ONCE:]:
            partition, known = self._broker.partition_of(log), self._published.get(log)
            if partition is None or known is None:
                continue
            config = partition.topic.config
            if known.budget != budget or (known.config is not config and known.config != config):
                self._due[log] = None
        del self._to_compare[-CONFIGS_AT_ONCE:]

    def _budget(self) -> int:
        return self._broker.disk_budget.limit(self._broker.disk_reserve.disk_bytes)

    # Writing

    def _publish(self, now_ms: int, steady_ms: int, earlier: dict[bytes, int]) -> None:
        records = [Record(0, now_ms, key=key) for key in islice(self._gone, RECORDS_AT_ONCE)]
        gone, logs, segments, budget = len(records), list[Log](), 0, self._budget()
        for log in list(islice(self._due, LOGS_AT_ONCE)):
            if len(records) >= RECORDS_AT_ONCE or segments >= SEGMENTS_AT_ONCE:
                break
            del self._due[log]
            partition = self._to_publish(log, steady_ms)
            if partition is None:
                continue
            fact = self._fact(partition, log, budget, now_ms)
            if not self._is_news(fact, earlier):
                self._published[log] = Published(steady_ms - INTERVAL_MS, partition.topic.config, budget)
            elif self._has_ages(log):
                logs.append(log)
                records.append(Record(0, now_ms, key=fact.key, value=fact.encode()))
                segments += len(fact.segments)
        if records and self._append(records, now_ms):
            for _ in range(gone):
                self._gone.popleft()
            for log in logs:
                self._published[log] = Published(steady_ms, self._broker.partition_of(log).topic.config, budget)  # type: ignore[union-attr]
                self._aged.discard(log)
        elif records:
            self._due.update(dict.fromkeys(logs))
            self._retry_ms = steady_ms + RETRY_MS

    def _to_publish(self, log: Log, steady_ms: int) -> Partition | None:
        """Returns the partition of a log that has changed; None if there is nothing to publish, now or ever."""
        partition, known = self._broker.partition_of(log), self._published.get(log)
        if partition is None or partition.topic.is_shown_as_internal:
            return None
        if known is None and not log.sealed_segments and not log.start_offset:
            return None
        if known is not None and steady_ms - known.steady_ms < INTERVAL_MS:
            self._due[log] = None
            return None
        return partition

    def _is_news(self, fact: PartitionFact, earlier: dict[bytes, int]) -> bool:
        """Returns whether the fact differs from the one that was published before this start, if any."""
        if not earlier or earlier.pop(fact.key, None) != _fingerprint(fact):
            return True
        must_tell, self._must_tell_ticks = self._must_tell_ticks, False
        return must_tell

    def _append(self, records: Sequence[Record], now_ms: int) -> bool:
        try:
            self._topic.append(records, now_ms)
        except (LogError, Refused) as error:
            if not self._has_failed:
                logger.warning("cannot write to %s: %s. It is tried again", SEGMENTS_TOPIC, error)
            self._has_failed = True
            return False
        self._has_failed = False
        return True

    def _fact(self, partition: Partition, log: Log, budget: int, now_ms: int) -> PartitionFact:
        topic, retention = partition.topic, self._broker.retention
        config, backlog = topic.config.log, topic.config.backlog
        found = [SegmentFact(one.base_offset, one.end_offset, one.size, one.largest_timestamp) for one in facts_of(log)]
        return PartitionFact(
            topic=topic.name,
            topic_id=topic.topic_id.hex(),
            partition=partition.index,
            at=now_ms,
            start=int(log.start_offset),
            segments=tuple(joined(found)),
            deletes=topic.config.deletes,
            compacts=topic.config.needs_keys,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            tick_ms=retention.interval_ms,
            policy=str(backlog.policy),
            hold_bytes=backlog.bytes_max,
            hold_ms=backlog.age_ms_max,
            hold_groups=backlog.groups,
            budget_bytes=budget,
            all_logs_bytes=self._broker.sizes.total,
            tick_at=retention.next_check_ms,
            hold_expiry_ms=backlog.expiry_ms if backlog.groups else -1,
            hold_signs=self._signs(topic, now_ms),
            active_since=now_ms - log.age_of_active_segment(now_ms) if found[-1].size else None,
        )

    def _signs(self, topic: Topic, now_ms: int) -> tuple[int, ...]:
        groups = self._broker.backlog.groups
        named = topic.config.backlog.groups if groups.are_known else ()
        return tuple(groups.last_sign(group, topic, now_ms) for group in named)

    # Ages that are not in memory

    def _has_ages(self, log: Log) -> bool:
        """Returns whether the ages of the oldest segments are in memory, as far as they can be read. If not, the log is
        due once they are.
        """
        if log in self._aged or not log.segments_of_unknown_age(AGES_AT_ONCE):
            return True
        self._unaged[log] = None
        return False

    def _read_ages(self) -> None:
        if not self._unaged or self._is_reading_ages:
            return
        self._is_reading_ages = True
        logs, self._unaged = list(self._unaged), {}
        segments = [segment for log in logs for segment in log.segments_of_unknown_age(AGES_AT_ONCE)]

        def finish() -> None:
            self._is_reading_ages = False
            self._aged.update(logs)
            self._due.update(dict.fromkeys(logs))

        self._broker.start_job(TimestampsJob(segments), finish)


def joined(segments: Sequence[SegmentFact], limit: int = SEGMENTS_MAX) -> Iterator[SegmentFact]:
    """Yields at most `limit` segments: the first half of them as they are, and the active one, which is the last. Those
    between are joined where there are more. Joined segments have the age of their first, so that a forecast is early.
    """
    if len(segments) <= limit:
        yield from segments
        return
    exact = limit // 2
    between = segments[exact:-1]
    count = -(-len(between) // (limit - exact - 1))
    yield from segments[:exact]
    for start in range(0, len(between), count):
        some = between[start : start + count]
        yield SegmentFact(some[0].base, some[-1].next, sum(segment.size for segment in some), some[0].newest)
    yield segments[-1]


def _fingerprint(fact: PartitionFact) -> int:
    """A hash of what makes a fact worth publishing: the active segment grows, and ages are read when needed."""
    sealed = tuple((segment.base, segment.size) for segment in fact.segments[:-1])
    active = fact.segments[-1].base if fact.segments else -1
    rest = fact._replace(at=0, segments=(), tick_at=0, all_logs_bytes=0, active_since=None, hold_signs=())
    return hash((rest, sealed, active))


class Earlier(NamedTuple):
    """A record that was published before this start."""

    topic_id: bytes
    fingerprint: int


class PublishedFactsJob(LastRecordsJob):
    """Reads the last record of each partition."""

    def __init__(self, logs: Sequence[Log]) -> None:
        super().__init__(logs)
        self.found: dict[bytes, Earlier] = {}

    def run(self) -> None:
        super().run()
        for key, record in self.last.items():
            try:
                fingerprint = _fingerprint(format_of.decode(record.value or b""))
            except UnreadableFact:
                fingerprint = 0  # of another release: written again, or removed
            self.found[key] = Earlier(_topic_id_of(key), fingerprint)
        self.last.clear()


def _topic_id_of(key: bytes) -> bytes:
    """Returns the topic id in a key; b"" if it is not one of ours."""
    try:
        return bytes.fromhex(document.decode(key, format_of.VERSION)["of"][0])
    except (UnreadableFact, ValueError, KeyError, IndexError, TypeError):
        return b""
