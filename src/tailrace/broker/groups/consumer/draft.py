"""The changes that one event makes to a consumer group: decided step by step, written as one batch (`epochs`). Pure."""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol

from tailrace.broker.groups.consumer.assignors import ASSIGNORS, Subscriber
from tailrace.broker.groups.consumer.state import Current, GroupState, Member, Partition, current_value, target_value
from tailrace.broker.groups.consumer_records import (
    ConsumerChange,
    GroupEpochChanged,
    GroupEpochValue,
    MemberAssignmentChanged,
    MemberChanged,
    MemberTargetChanged,
    PatternResolved,
    PatternValue,
    TargetEpochChanged,
    TargetEpochValue,
)
from tailrace.broker.groups.epochs import EpochDraft


class TopicFacts(NamedTuple):
    topic_id: bytes
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster, as groups see them."""

    def find(self, name: str) -> TopicFacts | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...


class Catalog(Topics, Protocol):
    """The same, with patterns that match them."""

    def check(self, pattern: str) -> None:
        """Raises Refused for a pattern that cannot be compiled."""
        ...

    def resolve(self, pattern: str) -> PatternValue | None:
        """Returns the topics that a pattern matches; None while that is being found out."""
        ...


class ConsumerSettings(NamedTuple):
    """The configs of a group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: str = "bidirectional"


class Draft(EpochDraft[GroupState, ConsumerChange]):
    def __init__(self, state: GroupState, settings: ConsumerSettings, catalog: Catalog, now_ms: int) -> None:
        super().__init__(state, settings.assignment_interval_ms, now_ms)
        self.settings = settings
        self.catalog = catalog

    # Members

    def set_current(self, member_id: str, current: Current) -> None:
        """Writes the current assignment of a member, if it differs."""
        member = self.state.members[member_id]
        if member.current != current:
            self.add(MemberAssignmentChanged(self.state.group_id, member_id, current_value(current)))

    def remove(self, member_ids: Iterable[str]) -> None:
        group_id = self.state.group_id
        for member_id in member_ids:
            self.add(MemberAssignmentChanged(group_id, member_id, None))
            self.add(MemberTargetChanged(group_id, member_id, None))
            self.add(MemberChanged(group_id, member_id, None))

    def replace(self, member: Member, member_id: str) -> None:
        """Gives a static member that has returned its new id. It keeps its assignments."""
        group_id = self.state.group_id
        self.remove([member.member_id])
        self.add(MemberChanged(group_id, member_id, member.details))
        self.add(MemberTargetChanged(group_id, member_id, target_value(member.target)))
        current = Current(assigned=member.current.assigned)
        self.add(MemberAssignmentChanged(group_id, member_id, current_value(current)))

    # Epochs and targets

    def resolve_patterns(self) -> bool:
        """Brings the topics of all patterns up to date. Returns whether a pattern matches other topics than before."""
        state, group_id = self.state, self.state.group_id
        has_changed = False
        for pattern in state.pattern_subscribers:
            value = self.catalog.resolve(pattern)
            known = state.patterns.get(pattern)
            if value is not None and (known is None or known.topics != value.topics):
                has_changed = True
                self.add(PatternResolved(group_id, pattern, value))
        for pattern in state.patterns.keys() - state.pattern_subscribers.keys():
            self.add(PatternResolved(group_id, pattern, None))
        return has_changed

    def settle(self, *, needs_epoch: bool) -> None:
        """Begins a new epoch if one is needed, or if subscribed topics have changed, and computes a new target once
        that is due.
        """
        state = self.state
        metadata_hash = hash_of_topics(state.topics, self.catalog)
        if needs_epoch or metadata_hash != state.metadata_hash:
            self.add(
                GroupEpochChanged(state.group_id, GroupEpochValue(epoch=state.epoch + 1, metadata_hash=metadata_hash))
            )
        if self.assignment_due_in_ms == 0:
            self._assign()

    def _assign(self) -> None:
        state = self.state
        members = list(state.members.values())
        topics = _TopicIds(state, self.catalog)
        subscribers = [
            Subscriber(member.member_id, member.details.instance_id, topics.of(member), member.target)
            for member in members
        ]
        targets = ASSIGNORS[self.assignor_name](subscribers, topics.partition_counts)
        for member in members:
            target = targets[member.member_id]
            if target != member.target:
                self.add(MemberTargetChanged(state.group_id, member.member_id, target_value(target)))
        value = TargetEpochValue(assignment_epoch=state.epoch, assignment_timestamp=self.now_ms)
        self.add(TargetEpochChanged(state.group_id, value))

    @property
    def assignor_name(self) -> str:
        return assignor_of(self.state, self.settings)


def assignor_of(state: GroupState, settings: ConsumerSettings) -> str:
    """Returns the assignor that most members prefer; without a preference, the first that is configured."""
    preferred = Counter(
        member.details.server_assignor
        for member in state.members.values()
        if member.details.server_assignor in settings.assignors
    )
    return preferred.most_common(1)[0][0] or settings.assignors[0] if preferred else settings.assignors[0]


class _TopicIds:
    """The ids of the topics that members subscribe to. Most members of a group subscribe to the same."""

    def __init__(self, state: GroupState, catalog: Catalog) -> None:
        self.partition_counts: dict[bytes, int] = {}
        self._state = state
        self._catalog = catalog
        self._known: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}

    def of(self, member: Member) -> frozenset[bytes]:
        details = member.details
        key = tuple(details.subscribed_names), details.subscribed_pattern
        found = self._known.get(key)
        if found is None:
            facts = [self._catalog.find(name) for name in self._state.topics_of(details)]
            self.partition_counts.update(facts_of for facts_of in facts if facts_of is not None)
            found = self._known[key] = frozenset(topic.topic_id for topic in facts if topic is not None)
        return found


def hash_of_topics(names: Iterable[str], catalog: Topics) -> int:
    """Returns a number that changes with the topics of these names: created, deleted, or with more partitions."""
    hashed = blake2b(digest_size=8)
    for name in sorted(names):
        facts = catalog.find(name)
        if facts is not None:
            hashed.update(facts.topic_id)
            hashed.update(facts.partition_count.to_bytes(4))
    return int.from_bytes(hashed.digest(), signed=True)


def partitions_of_topics(partitions: Iterable[Partition], topics: frozenset[str], catalog: Topics) -> list[Partition]:
    """Returns the partitions that belong to one of the topics."""
    wanted = {topic_id: catalog.name_of(topic_id) in topics for topic_id in {partition[0] for partition in partitions}}
    return [partition for partition in partitions if wanted[partition[0]]]
