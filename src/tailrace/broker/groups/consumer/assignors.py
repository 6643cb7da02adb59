"""Assignors: compute which member shall have which partitions. Pure.

range     every topic by itself, in contiguous ranges: partitions of the same number, of topics with as many
          partitions, go to the same member. Not sticky
uniform   all members get as many partitions as the others, give or take one, as far as their subscriptions allow;
          as few partitions as possible change their member
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

from tailrace.broker.groups.consumer.state import Partition


class Subscriber(NamedTuple):
    """A member, the ids of the topics that it subscribes to, and its previous target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    previous: frozenset[Partition] = frozenset()


Targets = dict[str, set[Partition]]
Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], Targets]


def assign_ranges(members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]) -> Targets:
    """Returns the targets of all members. `partition_counts` has the topics that exist."""
    targets: Targets = {member.member_id: set() for member in members}
    in_order = sorted(members, key=_range_order)
    for topic_id, count in partition_counts.items():
        subscribers = [member for member in in_order if topic_id in member.topics]
        if not subscribers:
            continue
        each, more = divmod(count, len(subscribers))
        first = 0
        for number, member in enumerate(subscribers):
            last = first + each + (number < more)
            targets[member.member_id].update((topic_id, index) for index in range(first, last))
            first = last
    return targets


def _range_order(member: Subscriber) -> tuple[bool, str]:
    """Static members come first, in the order of their instance ids, which they keep."""
    return member.instance_id is None, member.instance_id or member.member_id


def assign_uniformly(members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]) -> Targets:
    """Returns the targets of all members. `partition_counts` has the topics that exist."""
    if not members:
        return {}
    in_order = sorted(members)
    topics = {topic for member in members for topic in member.topics if topic in partition_counts}
    if all(topics <= member.topics for member in members):
        return _assign_equally(in_order, {topic: partition_counts[topic] for topic in topics})
    return _Balance(in_order, {topic: partition_counts[topic] for topic in topics}).assign()


def _exists(partition: Partition, partition_counts: Mapping[bytes, int]) -> bool:
    return partition[1] < partition_counts.get(partition[0], 0)


def _assign_equally(members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]) -> Targets:
    """All members subscribe to all topics: each keeps up to its quota, and the rest fills up the others."""
    total = sum(partition_counts.values())
    quota, more = divmod(total, len(members))
    targets: Targets = {}
    taken: set[Partition] = set()
    for member in members:
        had = sorted(partition for partition in member.previous - taken if _exists(partition, partition_counts))
        kept = had[:quota]
        if len(had) > quota and more:
            more -= 1
            kept = had[: quota + 1]
        targets[member.member_id] = set(kept)
        taken.update(kept)
    unassigned = (
        (topic_id, index)
        for topic_id in sorted(partition_counts)
        for index in range(partition_counts[topic_id])
        if (topic_id, index) not in taken
    )
    for member in members:
        target = targets[member.member_id]
        room = quota - len(target)
        if room >= 0 and more:
            more -= 1
            room += 1
        target.update(islice(unassigned, max(0, room)))
    return targets


class _Balance:
    """Members subscribe to different topics: each keeps what it had, the rest goes to the members with the least, and
    then partitions move from members with more to members with less, as long as that brings two of them closer.
    """

    def __init__(self, members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._targets: Targets = {member.member_id: set() for member in members}
        self._subscribers = {
            topic_id: [member.member_id for member in members if topic_id in member.topics]
            for topic_id in sorted(partition_counts)
        }

    def assign(self) -> Targets:
        owners = self._keep()
        topics = sorted(self._subscribers, key=lambda topic_id: (len(self._subscribers[topic_id]), topic_id))
        for topic_id in topics:  # those that few members can take come first
            self._fill(topic_id, owners)
        while sum(self._level(topic_id, owners) for topic_id in topics):
            pass  # every move brings two members closer, so it ends
        return self._targets

    def _keep(self) -> dict[Partition, str]:
        owners: dict[Partition, str] = {}
        for member in self._members:
            for partition in member.previous:
                if partition[0] in member.topics and _exists(partition, self._counts) and partition not in owners:
                    owners[partition] = member.member_id
                    self._targets[member.member_id].add(partition)
        return owners

    def _loads(self, member_ids: Sequence[str], sign: int) -> list[tuple[int, str]]:
        loads = [(sign * len(self._targets[member_id]), member_id) for member_id in member_ids]
        heapify(loads)
        return loads

    def _fill(self, topic_id: bytes, owners: dict[Partition, str]) -> None:
        lightest = self._loads(self._subscribers[topic_id], 1)
        for index in range(self._counts[topic_id]):
            partition = topic_id, index
            if partition not in owners:
                load, member_id = heappop(lightest)
                self._targets[member_id].add(partition)
                owners[partition] = member_id
                heappush(lightest, (load + 1, member_id))

    def _level(self, topic_id: bytes, owners: dict[Partition, str]) -> bool:
        """Moves partitions of a topic between its subscribers. Returns whether there was one to move."""
        by_owner: dict[str, list[Partition]] = {}
        for index in range(self._counts[topic_id]):
            by_owner.setdefault(owners[topic_id, index], []).append((topic_id, index))
        lightest = self._loads(self._subscribers[topic_id], 1)
        heaviest = self._loads(list(by_owner), -1)
        has_moved = False
        while heaviest:
            giver = heaviest[0][1]
            load, taker = lightest[0]
            if load != len(self._targets[taker]):  # it has given since
                heappop(lightest)
                heappush(lightest, (len(self._targets[taker]), taker))
                continue
            if -heaviest[0][0] != len(self._targets[giver]) or not by_owner[giver]:
                heappop(heaviest)
                if by_owner[giver]:
                    heappush(heaviest, (-len(self._targets[giver]), giver))
                continue
            if len(self._targets[giver]) - load <= 1:
                return has_moved
            self._move(by_owner[giver].pop(), giver, taker, owners)
            has_moved = True
        return has_moved

    def _move(self, partition: Partition, giver: str, taker: str, owners: dict[Partition, str]) -> None:
        self._targets[giver].remove(partition)
        self._targets[taker].add(partition)
        owners[partition] = taker


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
