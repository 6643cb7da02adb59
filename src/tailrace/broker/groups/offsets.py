"""Committed offsets: the last offset committed by each group for each topic and partition.

Changed by replay alone (`set`, `remove`); nothing expires.
"""

from collections.abc import Iterator

from tailrace.broker.groups.records import OffsetCommitValue

ByPartition = dict[int, OffsetCommitValue]


class CommittedOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, ByPartition]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, ByPartition]:
        """By topic; not to be changed."""
        return self._groups.get(group_id, {})

    def has(self, group_id: str) -> bool:
        return group_id in self._groups

    def groups(self) -> Iterator[tuple[str, dict[str, ByPartition]]]:
        return iter(self._groups.items())

    def set(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        topics.get(topic, {}).pop(partition, None)
        if topic in topics and not topics[topic]:
            del topics[topic]
        if group_id in self._groups and not topics:
            del self._groups[group_id]
