"""The topics of this broker, as consumer groups see them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.broker.groups.consumer.draft import TopicFacts
from tailrace.broker.groups.consumer.patterns import PatternResolver
from tailrace.broker.groups.consumer_records import PatternValue

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class BrokerCatalog:
    def __init__(self, broker: "Broker", resolved: Callable[[str], None], now_ms: Callable[[], int]) -> None:
        """`resolved` is called with each pattern whose topics are found out late."""
        self._metadata = broker.metadata
        self._now_ms = now_ms
        self._resolver = PatternResolver(broker.metadata, broker.start_job, resolved)

    def find(self, name: str) -> TopicFacts | None:
        topic = self._metadata.topics.get(name)
        return TopicFacts(topic.topic_id, topic.partition_count) if topic is not None else None

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._metadata.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def check(self, pattern: str) -> None:
        """Raises Refused for a pattern that cannot be compiled."""
        self._resolver.check(pattern)

    def resolve(self, pattern: str) -> PatternValue | None:
        return self._resolver.resolve(pattern, self._now_ms())

    def topics_changed(self) -> None:
        """Topics have come or gone: patterns have to be matched again."""
        self._resolver.topics_changed()
