"""A consumer group and its members, as replayed from the log of groups. `replay` is the only function that changes it.

A member has a *current* assignment, which it knows of, and a *target*, which the assignor chose. Its epoch is the epoch
of the target that it has adopted last; the group's epoch grows with every change that needs a new target.

An owner of a partition is a member whose current assignment has it, or has it pending revocation. There is one at most:
the record that gives a partition to a member is only written while the partition has no owner.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import NamedTuple

from tailrace.broker.groups.consumer_records import (
    AssignedPartitions,
    ConsumerChange,
    GroupEpochChanged,
    MemberAssignmentChanged,
    MemberAssignmentValue,
    MemberChanged,
    MemberTargetChanged,
    MemberTargetValue,
    MemberValue,
    PatternResolved,
    PatternValue,
    TargetEpochChanged,
    TargetPartitions,
)

Partition = tuple[bytes, int]
"""A topic id and the index of a partition."""

LEFT_EPOCH = -1  # what a member sends that leaves for good
STATIC_LEFT_EPOCH = -2  # what a static member sends that will be back; also its epoch until then


class MemberState(IntEnum):
    """How far a member is on the way to its target, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED = 1  # it has yet to give up partitions
    UNRELEASED = 2  # another member has yet to give up partitions that this one shall have


_STATES = {state.value: state for state in MemberState}


class GroupPhase(StrEnum):
    """The state of a group."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target is older than the group's epoch
    RECONCILING = "Reconciling"  # members have yet to adopt the target
    STABLE = "Stable"


class Current(NamedTuple):
    """The current assignment of a member. Each partition has the epoch in which it was assigned."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Partition, int] = {}
    pending: Mapping[Partition, int] = {}  # revocation


class Member(NamedTuple):
    member_id: str
    details: MemberValue
    target: frozenset[Partition] = frozenset()
    current: Current = Current()

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.details.classic is not None


class GroupState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assigned_at_ms = 0
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # member ids by instance id
        self.patterns: dict[str, PatternValue] = {}
        self.owners: dict[Partition, str] = {}
        self.name_subscribers: Counter[str] = Counter()  # number of members by topic name
        self.pattern_subscribers: Counter[str] = Counter()  # number of members by pattern

    def copy(self) -> "GroupState":
        """Returns an independent state that is equal to this one."""
        copied = GroupState(self.group_id)
        copied.epoch = self.epoch
        copied.metadata_hash = self.metadata_hash
        copied.assignment_epoch = self.assignment_epoch
        copied.assigned_at_ms = self.assigned_at_ms
        copied.members = self.members.copy()
        copied.static = self.static.copy()
        copied.patterns = self.patterns.copy()
        copied.owners = self.owners.copy()
        copied.name_subscribers = self.name_subscribers.copy()
        copied.pattern_subscribers = self.pattern_subscribers.copy()
        return copied

    # What follows from the state

    @property
    def phase(self) -> GroupPhase:
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupPhase.ASSIGNING
        if all(self.has_adopted(member) for member in self.members.values()):
            return GroupPhase.STABLE
        return GroupPhase.RECONCILING

    def has_adopted(self, member: Member) -> bool:
        """Whether the current assignment of a member is its target."""
        return member.current.state is MemberState.STABLE and member.current.epoch == self.assignment_epoch

    @property
    def classic_count(self) -> int:
        return sum(member.is_classic for member in self.members.values())

    def topics_of(self, details: MemberValue) -> frozenset[str]:
        """Returns the names of the topics that a member subscribes to; some may not exist."""
        names = frozenset(details.subscribed_names)
        resolved = self.patterns.get(details.subscribed_pattern or "")
        return names.union(resolved.topics) if resolved is not None else names

    @property
    def topics(self) -> set[str]:
        """The names of the topics that members subscribe to; some may not exist."""
        topics = set(self.name_subscribers)
        for pattern in self.patterns.values():
            topics.update(pattern.topics)
        return topics

    # Replay

    def replay(self, change: ConsumerChange) -> None:
        """Applies a record. The last records of all keys may come in any order."""
        match change:
            case GroupEpochChanged(_, value):
                self.epoch, self.metadata_hash = (value.epoch, value.metadata_hash) if value is not None else (0, 0)
            case TargetEpochChanged(_, value):
                self.assignment_epoch = value.assignment_epoch if value is not None else 0
                self.assigned_at_ms = value.assignment_timestamp if value is not None else 0
            case MemberChanged(_, member_id, value):
                self._replay_member(member_id, value)
            case MemberTargetChanged(_, member_id, value):
                if value is not None or member_id in self.members:
                    self.members[member_id] = self._member(member_id)._replace(target=target_of(value))
            case MemberAssignmentChanged(_, member_id, value):
                if value is not None or member_id in self.members:
                    self._replay_current(self._member(member_id), current_of(value))
            case PatternResolved(_, pattern, value):
                if value is not None:
                    self.patterns[pattern] = value
                else:
                    self.patterns.pop(pattern, None)

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id, MemberValue())

    def _replay_member(self, member_id: str, value: MemberValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before.details, -1)
            if self.static.get(before.details.instance_id or "") == member_id:
                del self.static[before.details.instance_id or ""]
        if value is None:
            if before is not None:
                self._replay_current(before, Current())
                del self.members[member_id]
            return
        self.members[member_id] = self._member(member_id)._replace(details=value)
        self._count(value, 1)
        if value.instance_id is not None:
            self.static[value.instance_id] = member_id

    def _count(self, details: MemberValue, one: int) -> None:
        for name in details.subscribed_names:
            self.name_subscribers[name] += one
            if not self.name_subscribers[name]:
                del self.name_subscribers[name]
        if pattern := details.subscribed_pattern:
            self.pattern_subscribers[pattern] += one
            if not self.pattern_subscribers[pattern]:
                del self.pattern_subscribers[pattern]

    def _replay_current(self, member: Member, current: Current) -> None:
        for partitions in (member.current.assigned, member.current.pending):
            for partition in partitions:
                if self.owners.get(partition) == member.member_id:
                    del self.owners[partition]
        for partitions in (current.assigned, current.pending):
            self.owners.update(dict.fromkeys(partitions, member.member_id))
        self.members[member.member_id] = member._replace(current=current)


# Assignments as values of records, and back


def target_of(value: MemberTargetValue | None) -> frozenset[Partition]:
    topics = value.topic_partitions if value is not None else ()
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def target_value(target: Iterable[Partition]) -> MemberTargetValue:
    return MemberTargetValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(target).items()
        ]
    )


def current_of(value: MemberAssignmentValue | None) -> Current:
    if value is None:
        return Current()
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.STABLE),
        _assigned_of(value.assigned, value.member_epoch),
        _assigned_of(value.pending_revocation, value.member_epoch),
    )


def current_value(current: Current) -> MemberAssignmentValue:
    return MemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned=_assigned_value(current.assigned),
        pending_revocation=_assigned_value(current.pending),
    )


def _assigned_of(topics: Iterable[AssignedPartitions], epoch: int) -> dict[Partition, int]:
    """Early releases of Kafka did not write the epochs of partitions: `epoch` takes their place."""
    assigned: dict[Partition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or ()
        for number, index in enumerate(topic.partitions):
            assigned[topic.topic_id, index] = epochs[number] if number < len(epochs) else epoch
    return assigned


def _assigned_value(assigned: Mapping[Partition, int]) -> list[AssignedPartitions]:
    return [
        AssignedPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[assigned[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in by_topic(assigned).items()
    ]


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, list[int]]:
    """Returns the indexes of the partitions of each topic, in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics
