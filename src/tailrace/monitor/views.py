"""One connection's view of a cluster, for the command line: losses, lag and buffers, read when they are asked for."""

import time
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType

from tailrace.client import groups
from tailrace.facts import lag as lag_facts
from tailrace.facts.document import UnreadableFact
from tailrace.facts.lag import BEAT_KEY, Beat, GroupLag
from tailrace.facts.losses import Loss
from tailrace.monitor.figures.buffers import Buffer, disk_buffers, topic_buffers
from tailrace.monitor.figures.lag import LagTracker
from tailrace.monitor.figures.losses import join
from tailrace.monitor.figures.report import MONITOR, SAMPLED, LagReport
from tailrace.monitor.sources.connection import connect, errors_as_monitor_errors
from tailrace.monitor.sources.kafka_facts import KafkaFacts
from tailrace.monitor.sources.published import LAG_TOPIC, TopicReader, losses_in_ledger
from tailrace.monitor.sources.tailrace_facts import facts_about


class View:
    """The constructor raises BadProperties; all methods raise MonitorError."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._cluster = connect(properties)

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def group_names(self) -> set[str]:
        with errors_as_monitor_errors():
            return groups.names(self._cluster)

    def losses(self) -> list[Loss]:
        """Returns the losses of each group; see `losses.join`."""
        with errors_as_monitor_errors():
            return join(losses_in_ledger(self._cluster))

    def lag(self, group: str | None, topics: Collection[str], sample_s: float) -> Iterator[LagReport]:
        """Yields reports for as long as the caller asks: at once while a monitor publishes, else each after a sample.
        So, too, of a group that the monitor does not know yet. Waits between reports are the caller's, but for samples.
        """
        published, sampled = PublishedLag(self), None
        while True:
            with errors_as_monitor_errors():
                report = published.read(group, topics)
                if report is None or (group is not None and group not in report.group_names):
                    sampled = sampled or SampledLag(facts_about(self._cluster, group=group, topics=topics))
                    report = sampled.read(sample_s)
            yield report

    def buffers(self, topics: Collection[str], sample_s: float) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
        """Returns for how long there is room, by topic and by disk, at the rates between two samples."""
        with errors_as_monitor_errors():
            facts, tracker = facts_about(self._cluster), LagTracker()
            tracker.observe(facts.snapshot())
            time.sleep(sample_s)
            snapshot = facts.snapshot()
            tracker.observe(snapshot)
            rates = tracker.write_rates(snapshot.logs)
        of_topics = {
            topic: buffer
            for topic, buffer in topic_buffers(snapshot, rates).items()
            if (topic in topics if topics else not topic.startswith("__"))
        }
        return of_topics, disk_buffers(snapshot, rates)

    @property
    def lag_topic(self) -> TopicReader:
        return TopicReader(self._cluster, LAG_TOPIC)


class PublishedLag:
    """The rows that a monitor publishes in `__tailrace_lag`."""

    def __init__(self, view: View) -> None:
        self._reader = view.lag_topic
        self._values: dict[bytes, bytes] = {}

    def read(self, group: str | None, topics: Collection[str]) -> LagReport | None:
        """Returns None unless a monitor has published something of late."""
        for record in self._reader.read():
            if self._reader.has_begun_anew:
                self._values, self._reader.has_begun_anew = {}, False
            if record.key is not None and record.value is not None:
                self._values[record.key] = record.value
            elif record.key is not None:
                self._values.pop(record.key, None)
        now = now_ms()
        beat = self._beat()
        if beat is None or not beat.is_fresh(now):
            return None
        keys = self._values.keys() - {BEAT_KEY} if group is None else self._values.keys() & {lag_facts.key_of(group)}
        found = sorted(filter(None, (self._group(key) for key in keys)))
        if topics:
            found = [one._replace(rows=tuple(row for row in one.rows if row.topic in topics)) for one in found]
        return LagReport(now, beat.source, MONITOR, found, frozenset(one.group for one in found))

    def _beat(self) -> Beat | None:
        try:
            return lag_facts.decode_beat(self._values[BEAT_KEY])
        except (KeyError, UnreadableFact):
            return None

    def _group(self, key: bytes) -> GroupLag | None:
        try:
            return lag_facts.decode_group(self._values[key])
        except UnreadableFact:
            return None


class SampledLag:
    """Two samples, and one more with each further report."""

    def __init__(self, facts: KafkaFacts) -> None:
        self._facts = facts
        self._tracker = LagTracker(samples_only=True)
        self._has_begun = False

    def read(self, sample_s: float) -> LagReport:
        if not self._has_begun:
            self._tracker.observe(self._facts.snapshot())
            self._has_begun = True
        time.sleep(sample_s)
        snapshot = self._facts.snapshot()
        found = self._tracker.observe(snapshot)
        return LagReport(now_ms(), snapshot.source, SAMPLED, found, frozenset(self._facts.group_names))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
