"""Committed offsets: the last offset committed by each group for each topic and partition.

Changed by replay alone (`set`, `set_pending`, `end_transaction`, `remove`); nothing expires. Each partition also has
its commits sorted by offset: a deletion of records finds the groups that it overtakes without going over all groups.
What a transaction commits is pending until its marker (`pending_offsets`): no client sees it before.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from tailrace.broker.groups.pending_offsets import GroupTransaction, PendingOffsets, Place
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.records.control import Marker

ByPartition = dict[int, OffsetCommitValue]

CommitObserver = Callable[[str, str, int, OffsetCommitValue | None, OffsetCommitValue | None], None]
"""Called after each change with group, topic, partition, the commit before and the commit now; None is none."""


class CommittedOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, ByPartition]] = {}
        self._sorted: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.pending = PendingOffsets()
        self.observers: list[CommitObserver] = []

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, ByPartition]:
        """The offsets of a group, by topic. Must not be changed."""
        return self._groups.get(group_id, {})

    def has(self, group_id: str) -> bool:
        """Whether the group has offsets, committed or pending."""
        return group_id in self._groups or self.pending.has_group(group_id)

    def has_place(self, group_id: str, place: Place) -> bool:
        """Whether the group has an offset there, committed or pending."""
        return self.get(group_id, *place) is not None or self.pending.has(group_id, place)

    def places_where(self, group_id: str, is_wanted: Callable[[str, OffsetCommitValue], bool]) -> Iterator[Place]:
        """Yields where the group has offsets, if all of them there, committed and pending, are wanted."""
        pending = self.pending.of_group(group_id)
        for topic, partitions in self.of_group(group_id).items():
            for partition, value in partitions.items():
                if is_wanted(topic, value) and not (pending and (topic, partition) in pending):
                    yield topic, partition
        for (topic, partition), found in pending.items():
            committed = self.get(group_id, topic, partition)
            if all(is_wanted(topic, one.value) for one in found.values()) and (
                committed is None or is_wanted(topic, committed)
            ):
                yield topic, partition

    def groups(self) -> Iterator[tuple[str, dict[str, ByPartition]]]:
        return iter(self._groups.items())

    def group_ids(self) -> list[str]:
        """All groups that have offsets, committed or pending."""
        return list(dict.fromkeys((*self._groups, *self.pending.groups())))

    def committed_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        """Returns offset and group of each commit in this partition from `first` on and below `before`, sorted."""
        commits = self._sorted.get((topic, partition), [])
        return commits[bisect_left(commits, (first, "")) : bisect_left(commits, (before, ""))]

    def set(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue, record_offset: int) -> None:
        """Sets a committed offset, whose record has this offset in the log of groups."""
        if self.pending:
            self.pending.supersede(group_id, (topic, partition), record_offset)
        commits = self._groups.setdefault(group_id, {}).setdefault(topic, {})
        before = commits.get(partition)
        commits[partition] = value
        if before is None or before.offset != value.offset:
            self._remove_sorted(group_id, topic, partition, before)
            insort(self._sorted.setdefault((topic, partition), []), (value.offset, group_id))
        for observe in self.observers:
            observe(group_id, topic, partition, before, value)

    def set_pending(
        self,
        transaction: GroupTransaction,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue,
        record_offset: int,
    ) -> None:
        """Keeps an offset that is committed in a transaction, until `end_transaction`."""
        self.pending.set(transaction, group_id, (topic, partition), value, record_offset)

    def end_transaction(self, transaction: GroupTransaction, marker: Marker) -> list[str]:
        """Commits or drops what is pending of a transaction. Returns its groups."""
        ended = self.pending.take(transaction)
        for group_id, (topic, partition), found in ended:
            if marker is Marker.COMMIT and not found.is_superseded:
                self.set(group_id, topic, partition, found.value, found.record_offset)
        return list(dict.fromkeys(group_id for group_id, _, _ in ended))

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Removes an offset, committed and pending."""
        if self.pending:
            self.pending.remove(group_id, (topic, partition))
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
