"""Counters of the broker, by topic and by reason of deletion, and the size of all logs. Metrics read them."""

from collections import Counter

from tailrace.log.log import Log
from tailrace.log.retention import Reason
from tailrace.log.segment.segment import Segment


class TopicCounters:
    __slots__ = ("bytes_deleted", "bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_deleted = 0


class Counters:
    """By topic, since the start of the process."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounters] = {}
        self.bytes_deleted: Counter[Reason] = Counter()
        self.segments_deleted: Counter[Reason] = Counter()

    def topic(self, name: str) -> TopicCounters:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def produced(self, topic: str, records: int, size: int) -> None:
        counters = self.topic(topic)
        counters.records_in += records
        counters.bytes_in += size

    def deleted(self, topic: str, reason: Reason, size: int, segments: int) -> None:
        self.topic(topic).bytes_deleted += size
        self.bytes_deleted[reason] += size
        self.segments_deleted[reason] += segments


class LogSizes:
    """How many bytes all logs take, without a walk over all of them.

    A log is measured when it is created, after each flush, after a deletion or a compaction, and when retention visits
    it. So the total lags behind the clients' appends by a second at most. Thereby it is noticed which logs have other
    segments than before (`changed`).
    """

    def __init__(self) -> None:
        self._sizes: dict[Log, int] = {}
        self._segments: dict[Log, tuple[Segment, ...]] = {}
        self.total = 0
        self.changed: dict[Log, None] = {}  # logs whose segments or start have changed, until `SegmentPublisher` looks

    def measure(self, log: Log) -> None:
        size, segments = log.size, log.segments
        self.total += size - self._sizes.get(log, 0)
        self._sizes[log] = size
        if self._segments.get(log) is not segments:
            self._segments[log] = segments
            self.changed[log] = None

    def forget(self, log: Log) -> None:
        self.total -= self._sizes.pop(log, 0)
        self._segments.pop(log, None)
        self.changed.pop(log, None)
