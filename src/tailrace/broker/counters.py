"""What the broker counts for those who watch it. Reading it costs nothing to those who are counted."""


class TopicCounters:
    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0


class Counters:
    """By topic, since the start of the process."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounters] = {}

    def topic(self, name: str) -> TopicCounters:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def produced(self, topic: str, records: int, size: int) -> None:
        counters = self.topic(topic)
        counters.records_in += records
        counters.bytes_in += size
