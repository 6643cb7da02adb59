"""The changes that one event makes to a share group: decided step by step, written as one batch (`epochs`). Pure."""

from collections.abc import Collection, Iterable, Mapping

from tailrace.broker.configs.share import ShareSettings
from tailrace.broker.groups.consumer.draft import TopicFacts, Topics, hash_of_topics
from tailrace.broker.groups.consumer.state import target_value
from tailrace.broker.groups.consumer_records import TargetEpochValue
from tailrace.broker.groups.epochs import EpochDraft
from tailrace.broker.groups.share.assignor import ShareSubscriber, assign
from tailrace.broker.groups.share.state import (
    Current,
    ShareGroupState,
    ShareMember,
    TopicState,
    current_value,
    initialized_value,
)
from tailrace.broker.groups.share_records import (
    ShareAssignmentChanged,
    ShareChange,
    ShareEpochChanged,
    ShareEpochValue,
    ShareMemberChanged,
    ShareTargetChanged,
    ShareTargetEpochChanged,
    StatePartitionsChanged,
)

ASSIGNOR = "simple"


class ShareDraft(EpochDraft[ShareGroupState, ShareChange]):
    def __init__(self, state: ShareGroupState, settings: ShareSettings, topics: Topics, now_ms: int) -> None:
        super().__init__(state, settings.assignment_interval_ms, now_ms)
        self.settings = settings
        self.topics = topics
        self.new_partitions: dict[bytes, Collection[int]] = {}  # by topic id: those that get a state

    # Members

    def set_current(self, member: ShareMember, current: Current) -> None:
        """Writes the current assignment of a member, if it differs."""
        if member.current != current:
            self.add(ShareAssignmentChanged(self.state.group_id, member.member_id, current_value(current)))

    def remove(self, member_id: str) -> None:
        group_id = self.state.group_id
        self.add(ShareAssignmentChanged(group_id, member_id, None))
        self.add(ShareTargetChanged(group_id, member_id, None))
        self.add(ShareMemberChanged(group_id, member_id, None))

    # Partitions with a state

    def set_initialized(self, initialized: Mapping[bytes, TopicState]) -> None:
        """Writes which partitions the group has a state of, if others than before."""
        if initialized != self.state.initialized:
            self.add(StatePartitionsChanged(self.state.group_id, initialized_value(initialized)))

    def _initialize(self) -> None:
        """Gives all partitions of subscribed topics a state, and forgets topics that were deleted."""
        before = self.state.initialized
        kept = {topic_id: topic for topic_id, topic in before.items() if self.topics.name_of(topic_id) is not None}
        for name, facts in self._subscribed():
            all_of_them = frozenset(range(facts.partition_count))
            had = before[facts.topic_id].partitions if facts.topic_id in before else frozenset()
            if new := all_of_them - had:
                self.new_partitions[facts.topic_id] = sorted(new)
                kept[facts.topic_id] = TopicState(name, had | new)
        self.set_initialized(kept)

    def _subscribed(self) -> Iterable[tuple[str, TopicFacts]]:
        for name in sorted(self.state.subscribers):
            if (facts := self.topics.find(name)) is not None:
                yield name, facts

    # Epochs and targets

    def settle(self, *, needs_epoch: bool) -> None:
        """Begins a new epoch if one is needed, or if subscribed topics have changed, and computes a new target once
        that is due. What can be assigned has a state then.
        """
        self._initialize()
        state = self.state
        metadata_hash = hash_of_topics(state.subscribers, self.topics)
        has_changed = bool(state.members) and metadata_hash != state.metadata_hash
        if needs_epoch or self.new_partitions or has_changed:
            value = ShareEpochValue(epoch=state.epoch + 1, metadata_hash=metadata_hash)
            self.add(ShareEpochChanged(state.group_id, value))
        if self.assignment_due_in_ms == 0:
            self._assign()

    def _assign(self) -> None:
        state = self.state
        facts = dict(self._subscribed())
        subscribers = [
            ShareSubscriber(
                member.member_id,
                frozenset(facts[name].topic_id for name in member.details.subscribed_names if name in facts),
                member.target,
            )
            for member in state.members.values()
        ]
        targets = assign(subscribers, dict(facts.values()))
        for member in list(state.members.values()):
            target = targets[member.member_id]
            if target != member.target:
                self.add(ShareTargetChanged(state.group_id, member.member_id, target_value(target)))
        value = TargetEpochValue(assignment_epoch=state.epoch, assignment_timestamp=self.now_ms)
        self.add(ShareTargetEpochChanged(state.group_id, value))
