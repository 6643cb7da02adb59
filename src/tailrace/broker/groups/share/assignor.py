"""The assignor `simple`: computes which members shall have which partitions. Pure.

Several members share a partition where there are more members than partitions; otherwise a member has several. All
partitions of topics with the same subscribers are shared out together: each partition has as many members as the
others, and each member as many partitions as the others, give or take one. As far as that allows, members keep what
they had.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker.groups.consumer.state import Partition


class ShareSubscriber(NamedTuple):
    """A member, the ids of the topics that it subscribes to, and its previous target."""

    member_id: str
    topics: frozenset[bytes]
    previous: frozenset[Partition] = frozenset()


Targets = dict[str, set[Partition]]


def assign(members: Sequence[ShareSubscriber], partition_counts: Mapping[bytes, int]) -> Targets:
    """Returns the targets of all members. `partition_counts` has the topics that exist."""
    targets: Targets = {member.member_id: set() for member in members}
    by_subscribers: dict[tuple[str, ...], list[bytes]] = {}
    subscribers = _subscribers(members, partition_counts)
    for topic_id in sorted(partition_counts):
        if topic_id in subscribers:
            by_subscribers.setdefault(tuple(subscribers[topic_id]), []).append(topic_id)
    previous = {member.member_id: member.previous for member in members}
    for member_ids, topic_ids in by_subscribers.items():
        partitions = [(topic_id, index) for topic_id in topic_ids for index in range(partition_counts[topic_id])]
        for member_id, assigned in _Share(member_ids, partitions, previous).assign().items():
            targets[member_id] |= assigned
    return targets


def _subscribers(members: Sequence[ShareSubscriber], topic_ids: Iterable[bytes]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    existing = frozenset(topic_ids)
    for member in sorted(members):
        for topic_id in member.topics & existing:
            found.setdefault(topic_id, []).append(member.member_id)
    return found


class _Share:
    """Shares out partitions that the same members subscribe to."""

    def __init__(
        self, member_ids: Sequence[str], partitions: Sequence[Partition], previous: Mapping[str, frozenset[Partition]]
    ) -> None:
        self._partitions = partitions
        self._holders: dict[Partition, set[str]] = {partition: set() for partition in partitions}
        self._targets = {
            member_id: {partition for partition in previous[member_id] if partition in self._holders}
            for member_id in member_ids
        }
        self._sharing = -(-len(member_ids) // len(partitions))  # members of each partition
        each, more = divmod(self._sharing * len(partitions), len(member_ids))
        # Those that had most keep most.
        in_order = sorted(member_ids, key=lambda member_id: (-len(self._targets[member_id]), member_id))
        self._due = {member_id: each + (number < more) for number, member_id in enumerate(in_order)}

    def assign(self) -> Targets:
        for member_id, target in self._targets.items():
            for partition in target:
                self._holders[partition].add(member_id)
        for member_id in self._targets:
            self._take_what_is_too_much(member_id)
        for partition in self._partitions:
            for member_id in sorted(self._holders[partition])[self._sharing :]:
                self._remove(member_id, partition)
        self._fill()
        return self._targets

    def _take_what_is_too_much(self, member_id: str) -> None:
        """Takes partitions from a member that has more than it is due: first those that most members have."""
        target = self._targets[member_id]
        if (excess := len(target) - self._due[member_id]) > 0:
            for partition in sorted(target, key=lambda one: (-len(self._holders[one]), one))[:excess]:
                self._remove(member_id, partition)

    def _fill(self) -> None:
        """Gives each partition the members that it lacks."""
        lacking = [member_id for member_id, target in self._targets.items() if len(target) < self._due[member_id]]
        unfilled = []
        for partition in self._partitions:
            holders = self._holders[partition]
            while len(holders) < self._sharing:
                member_id = next((one for one in lacking if one not in holders), None)
                if member_id is None:
                    unfilled += [partition] * (self._sharing - len(holders))
                    break
                self._add(member_id, partition)
                lacking.remove(member_id)
                if len(self._targets[member_id]) < self._due[member_id]:
                    lacking.append(member_id)  # behind the others, so that all fill up alike
        for partition in unfilled:
            self._swap(lacking[0], partition)
            if len(self._targets[lacking[0]]) == self._due[lacking[0]]:
                del lacking[0]

    def _swap(self, member_id: str, partition: Partition) -> None:
        """Gives the member another partition, whose former member takes this one, which the member already has.

        There is such a pair: the member lacks partitions, so there is one that it does not have; that one has all its
        members, or the member would have got it; and one of those does not have this one, which has fewer.
        """
        for other in self._partitions:
            if member_id not in self._holders[other]:
                giver = min(self._holders[other] - self._holders[partition])
                self._remove(giver, other)
                self._add(giver, partition)
                self._add(member_id, other)
                return

    def _add(self, member_id: str, partition: Partition) -> None:
        self._targets[member_id].add(partition)
        self._holders[partition].add(member_id)

    def _remove(self, member_id: str, partition: Partition) -> None:
        self._targets[member_id].discard(partition)
        self._holders[partition].discard(member_id)
