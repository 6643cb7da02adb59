"""A share group and its members, as replayed from the log of groups. `replay` is the only function that changes it.

A member has a *current* assignment, which it knows of, and a *target*, which the assignor chose. Its epoch is the epoch
of the target that it has adopted last; the group's epoch grows with every change that needs a new target.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from tailrace.broker.groups.consumer.state import Partition, by_topic, target_of
from tailrace.broker.groups.share_records import (
    ShareAssignmentChanged,
    ShareAssignmentValue,
    ShareChange,
    ShareEpochChanged,
    ShareMemberChanged,
    ShareMemberValue,
    SharePartitions,
    ShareTargetChanged,
    ShareTargetEpochChanged,
    StatePartitionsChanged,
    StatePartitionsValue,
    StateTopic,
)

LEFT_EPOCH = -1  # what a member sends that leaves


class SharePhase(StrEnum):
    """The state of a group."""

    EMPTY = "Empty"
    STABLE = "Stable"


class Current(NamedTuple):
    """The current assignment of a member."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[Partition] = frozenset()


class ShareMember(NamedTuple):
    member_id: str
    details: ShareMemberValue
    target: frozenset[Partition] = frozenset()
    current: Current = Current()


class TopicState(NamedTuple):
    """The partitions of a topic that the group has a state of."""

    name: str
    partitions: frozenset[int]


class ShareGroupState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assigned_at_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.initialized: Mapping[bytes, TopicState] = {}  # by topic id
        self.subscribers: Counter[str] = Counter()  # number of members by topic name

    def copy(self) -> "ShareGroupState":
        """Returns an independent state that is equal to this one."""
        copied = ShareGroupState(self.group_id)
        copied.epoch = self.epoch
        copied.metadata_hash = self.metadata_hash
        copied.assignment_epoch = self.assignment_epoch
        copied.assigned_at_ms = self.assigned_at_ms
        copied.members = self.members.copy()
        copied.initialized = self.initialized
        copied.subscribers = self.subscribers.copy()
        return copied

    # What follows from the state

    @property
    def phase(self) -> SharePhase:
        return SharePhase.STABLE if self.members else SharePhase.EMPTY

    def has_adopted(self, member: ShareMember) -> bool:
        """Whether the current assignment of a member is its target."""
        return member.current.epoch == self.assignment_epoch

    # Replay

    def replay(self, change: ShareChange) -> None:
        """Applies a record. The last records of all keys may come in any order."""
        match change:
            case ShareEpochChanged(_, value):
                self.epoch, self.metadata_hash = (value.epoch, value.metadata_hash) if value is not None else (0, 0)
            case ShareTargetEpochChanged(_, value):
                self.assignment_epoch = value.assignment_epoch if value is not None else 0
                self.assigned_at_ms = value.assignment_timestamp if value is not None else 0
            case ShareMemberChanged(_, member_id, value):
                self._replay_member(member_id, value)
            case ShareTargetChanged(_, member_id, value):
                if value is not None or member_id in self.members:
                    self.members[member_id] = self._member(member_id)._replace(target=target_of(value))
            case ShareAssignmentChanged(_, member_id, value):
                if value is not None or member_id in self.members:
                    self.members[member_id] = self._member(member_id)._replace(current=current_of(value))
            case StatePartitionsChanged(_, value):
                self.initialized = initialized_of(value)

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id, ShareMemberValue())

    def _replay_member(self, member_id: str, value: ShareMemberValue | None) -> None:
        if (before := self.members.get(member_id)) is not None:
            self._count(before.details, -1)
        if value is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = self._member(member_id)._replace(details=value)
        self._count(value, 1)

    def _count(self, details: ShareMemberValue, one: int) -> None:
        for name in details.subscribed_names:
            self.subscribers[name] += one
            if not self.subscribers[name]:
                del self.subscribers[name]


# Assignments and states as values of records, and back


def current_of(value: ShareAssignmentValue | None) -> Current:
    if value is None:
        return Current()
    assigned = frozenset((topic.topic_id, index) for topic in value.assigned for index in topic.partitions)
    return Current(value.member_epoch, value.previous_member_epoch, assigned)


def current_value(current: Current) -> ShareAssignmentValue:
    return ShareAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        assigned=[
            SharePartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(current.assigned).items()
        ],
    )


def initialized_of(value: StatePartitionsValue | None) -> dict[bytes, TopicState]:
    topics = value.initialized if value is not None else ()
    return {topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions)) for topic in topics}


def initialized_value(initialized: Mapping[bytes, TopicState]) -> StatePartitionsValue:
    return StatePartitionsValue(initialized=list(_topics(initialized)))


def _topics(initialized: Mapping[bytes, TopicState]) -> Iterable[StateTopic]:
    for topic_id, topic in sorted(initialized.items()):
        yield StateTopic(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
