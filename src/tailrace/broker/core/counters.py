"""What the broker counts for those who watch it. Reading it costs nothing to those who are counted."""

from collections import Counter

from tailrace.log.retention import Reason


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
