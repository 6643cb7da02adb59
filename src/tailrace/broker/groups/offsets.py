"""Committed offsets: the last offset committed by each group for each topic and partition.

Changed by replay alone (`set`, `remove`); nothing expires. Each partition also has its commits sorted by offset: a
deletion of records finds the groups that it overtakes without going over all groups.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from tailrace.broker.groups.records import OffsetCommitValue

ByPartition = dict[int, OffsetCommitValue]

CommitObserver = Callable[[str, str, int, OffsetCommitValue | None, OffsetCommitValue | None], None]
"""Called after each change with group, topic, partition, the commit before and the commit now; None is none."""


class CommittedOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, ByPartition]] = {}
        self._sorted: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.observers: list[CommitObserver] = []

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, ByPartition]:
        """The offsets of a group, by topic. Must not be changed."""
        return self._groups.get(group_id, {})

    def has(self, group_id: str) -> bool:
        return group_id in self._groups

    def groups(self) -> Iterator[tuple[str, dict[str, ByPartition]]]:
        return iter(self._groups.items())

    def committed_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        """Returns offset and group of each commit in this partition from `first` on and below `before`, sorted."""
        commits = self._sorted.get((topic, partition), [])
        return commits[bisect_left(commits, (first, "")) : bisect_left(commits, (before, ""))]

    def set(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        commits = self._groups.setdefault(group_id, {}).setdefault(topic, {})
        before = commits.get(partition)
        commits[partition] = value
        if before is None or before.offset != value.offset:
            self._remove_sorted(group_id, topic, partition, before)
            insort(self._sorted.setdefault((topic, partition), []), (value.offset, group_id))
        for observe in self.observers:
            observe(group_id, topic, partition, before, value)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        before = topics.get(topic, {}).pop(partition, None)
        if topic in topics and not topics[topic]:
            del topics[topic]
        if group_id in self._groups and not topics:
            del self._groups[group_id]
        if before is not None:
            self._remove_sorted(group_id, topic, partition, before)
            for observe in self.observers:
                observe(group_id, topic, partition, before, None)

    def _remove_sorted(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> None:
        if value is None:
            return
        commits = self._sorted[topic, partition]
        del commits[bisect_left(commits, (value.offset, group_id))]
        if not commits:
            del self._sorted[topic, partition]
