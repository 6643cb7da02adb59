"""All share partitions, by group and by partition."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from tailrace.broker.configs.share import ShareSettings, share_settings
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.queue_partition import QueuePartition

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class GroupQueues:
    """The share partitions of one group."""

    def __init__(self, group: str, settings: ShareSettings) -> None:
        self.group = group
        self.settings = settings
        self.partitions: dict[TopicPartitionId, QueuePartition] = {}
        self.next_due: int | None = None  # of the deadlines of its share partitions

    @property
    def of_partitions(self) -> PartitionSettings:
        """What the share partitions need of the settings."""
        return partition_settings(self.group, self.settings)


class QueueTable:
    def __init__(self, broker: "Broker") -> None:
        self.groups: dict[str, GroupQueues] = {}  # those that have share partitions
        self.count = 0  # of share partitions
        self._metadata = broker.metadata
        self._by_topic: dict[bytes, dict[int, dict[str, QueuePartition]]] = {}

    def find(self, group: str, topic_id: bytes, index: int) -> QueuePartition | None:
        queues = self.groups.get(group)
        return queues.partitions.get((topic_id, index)) if queues is not None else None

    def all(self) -> Iterator[QueuePartition]:
        for queues in self.groups.values():
            yield from queues.partitions.values()

    def of_partition(self, topic_id: bytes, index: int) -> Collection[QueuePartition]:
        """All share partitions of a partition, of whatever groups."""
        return self._by_topic.get(topic_id, {}).get(index, {}).values()

    def of_topic(self, topic_id: bytes) -> Iterator[QueuePartition]:
        for of_index in self._by_topic.get(topic_id, {}).values():
            yield from of_index.values()

    def settings_of(self, group: str) -> ShareSettings:
        queues = self.groups.get(group)
        return queues.settings if queues is not None else self.current_settings(group)

    def current_settings(self, group: str) -> ShareSettings:
        """Returns the settings of a group as the configs are now."""
        return share_settings(self._metadata.group_overrides.get(group, {}), self._metadata.configs)

    def group(self, group: str) -> GroupQueues:
        """Returns the share partitions of a group, of which there may be none yet: then they are not in `groups`."""
        queues = self.groups.get(group)
        return GroupQueues(group, self.current_settings(group)) if queues is None else queues

    def add(self, queues: GroupQueues, queue: QueuePartition) -> None:
        _, topic_id, index = queue.key
        self.groups[queues.group] = queues
        queues.partitions[topic_id, index] = queue
        self._by_topic.setdefault(topic_id, {}).setdefault(index, {})[queues.group] = queue
        self.count += 1

    def remove(self, queue: QueuePartition) -> None:
        group, topic_id, index = queue.key
        queue.is_gone = True
        self.count -= 1
        queues, indexes = self.groups[group], self._by_topic[topic_id]
        del queues.partitions[topic_id, index]
        del indexes[index][group]
        if not queues.partitions:
            del self.groups[group]
        if not indexes[index]:
            del indexes[index]
        if not indexes:
            del self._by_topic[topic_id]


def partition_settings(group: str, settings: ShareSettings) -> PartitionSettings:
    """Returns what share partitions need of the settings of their group."""
    return PartitionSettings(
        attempts_max=settings.attempts_max,
        locks_max=settings.locks_max,
        is_renewable=settings.renews,
        lock_total_max_ms=settings.lock_total_ms_max,
        has_dead_letters=settings.dead_letter_topic is not None,
        parked_max=settings.parked_max,
        retry_delay_ms=settings.retry.delay_ms,
        retry_multiplier=settings.retry.multiplier,
        retry_delay_max_ms=settings.retry.delay_ms_max,
        retry_jitter=settings.retry.jitter,
        seed=crc32(group.encode()),
        orders_by_key=settings.orders_by_key,
    )
