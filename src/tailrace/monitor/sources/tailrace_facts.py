"""Facts about a broker of ours: those of any Kafka, and in addition its segments, its retention ticks and its budget.

The broker publishes segments in `__tailrace_segments` when one is rolled or deleted (format: `facts/segments`). A
partition without a record has one segment. What the last segment has become since, bounds and sizes by requests tell.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

from tailrace.client.admin.configs import values_of_a_broker
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Topic, TopicPartition
from tailrace.client.errors import NotOffered, Refused
from tailrace.facts import segments
from tailrace.facts.document import UnreadableFact
from tailrace.facts.segments import PartitionFact, SegmentFact
from tailrace.monitor.figures.forecast import Budget, Limits
from tailrace.monitor.figures.snapshot import TAILRACE, LogState, Snapshot
from tailrace.monitor.sources.kafka_facts import CONFIGS_S, KafkaFacts, hold_of
from tailrace.monitor.sources.published import SEGMENTS_TOPIC, TopicReader

MARK = "tailrace.monitor.enable"  # a config that only our broker has
TICK = "log.retention.check.interval.ms"
BUDGET = "tailrace.disk.budget.bytes"
RESERVE = "tailrace.disk.reserve.bytes"
Place = tuple[str, int]  # topic id and partition


def facts_about(cluster: Cluster, *, group: str | None = None, topics: Iterable[str] = ()) -> KafkaFacts:
    """Returns the source of facts that fits the cluster: ours, or any Kafka."""
    try:
        configs = values_of_a_broker(cluster, (MARK, TICK, BUDGET))
    except (NotOffered, Refused):
        configs = {}
    if MARK not in configs:
        return KafkaFacts(cluster, group=group, topics=topics)
    tick_ms, budget = (int(configs.get(name) or default) for name, default in ((TICK, 0), (BUDGET, -1)))
    return TailraceFacts(cluster, tick_ms, budget, group=group, topics=topics)


class TailraceFacts(KafkaFacts):
    source = TAILRACE

    def __init__(
        self, cluster: Cluster, tick_ms: int, budget: int, *, group: str | None = None, topics: Iterable[str] = ()
    ) -> None:
        super().__init__(cluster, group=group, topics=topics)
        self._reader = TopicReader(cluster, SEGMENTS_TOPIC)
        self._facts: dict[bytes, PartitionFact] = {}
        self._tick_ms = tick_ms
        self._budget = budget
        self._newest: PartitionFact | None = None
        self._reserve, self._reserve_until = -1, 0.0

    def refined(self, snapshot: Snapshot, topics: Mapping[str, Topic]) -> Snapshot:
        self._read()
        by_place: dict[Place, PartitionFact] = {(one.topic_id, one.partition): one for one in self._facts.values()}
        logs = {}
        for partition, log in snapshot.logs.items():
            topic_id = topics[partition.topic].topic_id.hex()
            logs[partition] = self._with_segments(log, by_place.get((topic_id, partition.partition)))
        return snapshot._replace(logs=logs, budget=self._budget_of(logs, snapshot), reserve=self._read_reserve())

    def _read_reserve(self) -> int:
        if time.monotonic() >= self._reserve_until:
            self._reserve_until = time.monotonic() + CONFIGS_S
            self._reserve = int(values_of_a_broker(self.cluster, (RESERVE,)).get(RESERVE) or -1)
        return self._reserve

    def _read(self) -> None:
        for record in self._reader.read():
            if self._reader.has_begun_anew:
                self._facts, self._reader.has_begun_anew = {}, False
            if record.key is None:
                continue
            if record.value is None:
                self._facts.pop(record.key, None)
                continue
            try:
                fact = segments.decode(record.value)
            except UnreadableFact:
                continue
            self._facts[record.key] = fact
            if self._newest is None or fact.at >= self._newest.at:
                self._newest = fact

    def _with_segments(self, log: LogState, fact: PartitionFact | None) -> LogState:
        newest = self._newest
        tick_ms = newest.tick_ms if newest is not None else self._tick_ms
        # Ticks are that far apart: the first one says as much, and does not change with each record.
        tick_at = newest.tick_at % tick_ms if newest is not None and newest.tick_at and tick_ms > 0 else None
        if fact is None:
            only = (SegmentFact(log.start, log.end, log.size or 0, None),) if log.end > log.start else ()
            return log._replace(segments=only, limits=log.limits._replace(tick_ms=tick_ms, tick_at=tick_at))
        return log._replace(
            segments=current_segments(fact, log),
            limits=Limits(
                fact.retention_ms,
                fact.retention_bytes,
                fact.segment_bytes,
                fact.segment_ms,
                tick_ms,
                tick_at,
                fact.active_since,
            ),
            deletes=fact.deletes,
            compacts=fact.compacts,
            hold=hold_of(fact.policy, fact.hold_bytes, fact.hold_ms),
            hold_groups=frozenset(fact.hold_groups),
            hold_expiry_ms=fact.hold_expiry_ms,
            hold_signs=dict(zip(fact.hold_groups, fact.hold_signs, strict=False)),
        )

    def _budget_of(self, logs: Mapping[TopicPartition, LogState], snapshot: Snapshot) -> Budget | None:
        size = self._newest.budget_bytes if self._newest is not None else self._budget
        if size < 0:
            return None
        droppable = sorted(
            (segment.newest, segment.size)
            for log in logs.values()
            if log.deletes and not log.compacts and (log.limits.retention_ms >= 0 or log.limits.retention_bytes >= 0)
            for segment in log.segments[:-1]
            if segment.newest is not None
        )
        ages = [newest for newest, _ in droppable]
        sums = [0, *accumulate(size for _, size in droppable)]
        known = sum(log.size or 0 for log in logs.values())
        all_logs = max(known, self._newest.all_logs_bytes if self._newest is not None else 0)
        return Budget(size, all_logs, sums[-1], 0.0, lambda newest: sums[bisect_left(ages, newest)])


def current_segments(fact: PartitionFact, log: LogState) -> tuple[SegmentFact, ...]:
    """The published segments, as the log is now: those that are gone left out, the last one up to the end."""
    found = [segment for segment in fact.segments[:-1] if segment.next > log.start]
    active = fact.segments[-1]
    base = max(active.base, log.start)
    if log.end <= base:
        return tuple(found)
    size = active.size if log.size is None else max(0, log.size - sum(segment.size for segment in found))
    return (*found, SegmentFact(base, log.end, size, active.newest))
