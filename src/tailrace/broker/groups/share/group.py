"""A share group as the coordinator sees it: decides on drafts, has them written, and sets deadlines.

session   a member has not been heard of for the session timeout: it is removed
refresh   topics have changed, or a new target is due
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, NoReturn

from tailrace.broker.configs.share import ShareSettings
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.state import HeldBytes
from tailrace.broker.groups.consumer.draft import Topics
from tailrace.broker.groups.consumer.group import (
    REFRESH,
    RETRY_MS,
    SESSION,
    TOPIC_BYTES,
    check_room,
    size_of_texts,
)
from tailrace.broker.groups.consumer.topic_index import TopicIndex
from tailrace.broker.groups.group import CommitCheck, Identity
from tailrace.broker.groups.records import Change
from tailrace.broker.groups.share import heartbeat
from tailrace.broker.groups.share.draft import ShareDraft
from tailrace.broker.groups.share.heartbeat import Outcome, ShareHeartbeat
from tailrace.broker.groups.share.share_state import ShareState
from tailrace.broker.groups.share.state import ShareGroupState, ShareMember, SharePhase, TopicState
from tailrace.broker.groups.share_records import (
    ShareChange,
    ShareEpochChanged,
    ShareMemberChanged,
    ShareMemberValue,
    ShareTargetEpochChanged,
    StatePartitionsChanged,
)
from tailrace.broker.groups.timers import Timer, Timers
from tailrace.protocol.errors import ErrorCode


class SharePorts(NamedTuple):
    """The group's interface to the coordinator. `write` appends changes to the log and replays them; it raises NotSaved
    if that fails.
    """

    timers: Timers
    write: Callable[[str, Sequence[Change]], None]
    topics: Topics
    settings: Callable[[str], ShareSettings]
    now_ms: Callable[[], int]
    readers: TopicIndex
    held: HeldBytes
    share_state: Callable[[], ShareState]


class ShareGroup:
    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, ports: SharePorts) -> None:
        self.group_id = group_id
        self.is_saved = False  # whether the log has it
        self._replayed = ShareGroupState(group_id)
        self._ports = ports

    # What others may know

    @property
    def state(self) -> SharePhase:
        return self._replayed.phase

    @property
    def replayed(self) -> ShareGroupState:
        """The group as the log has it. Must not be changed."""
        return self._replayed

    @property
    def members(self) -> dict[str, ShareMember]:
        """By member id. Must not be changed."""
        return self._replayed.members

    @property
    def is_empty(self) -> bool:
        return not self._replayed.members

    @property
    def initialized(self) -> Mapping[bytes, TopicState]:
        """The partitions that the group has a state of, by topic id. Must not be changed."""
        return self._replayed.initialized

    def partitions_with_state(self, topic_id: bytes) -> Collection[int]:
        topic = self.initialized.get(topic_id)
        return topic.partitions if topic is not None else ()

    @property
    def outlives_members(self) -> bool:
        return bool(self.initialized)

    def client_of(self, member_id: str) -> str | None:
        member = self.members.get(member_id)
        return member.details.client_id if member is not None else None

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._replayed.subscribers

    # Heartbeats

    def beat(self, beat: ShareHeartbeat) -> Outcome:
        """A member joins, stays or leaves. Raises Refused."""
        settings = self._ports.settings(self.group_id)
        session = self._timer(SESSION, beat.member_id)
        if (unchanged := heartbeat.unchanged(self._replayed, beat)) is not None:  # most heartbeats, by far
            self._ports.timers.set(session, settings.session_timeout_ms)
            return unchanged._replace(next_in_ms=settings.heartbeat_interval_ms)
        draft = self._draft()
        outcome = heartbeat.leave(draft, beat) if beat.is_leaving else heartbeat.beat(draft, beat)
        growth = (self._growth(change) for change in draft.changes if isinstance(change, ShareMemberChanged))
        check_room(growth, self._ports.timers, self._ports.held)
        self._write(draft)
        if beat.is_leaving:
            return outcome
        self._ports.timers.set(session, settings.session_timeout_ms)
        next_in_ms = settings.heartbeat_interval_ms
        if (due_in_ms := draft.assignment_due_in_ms) is not None:  # the member need not wait longer for its partitions
            next_in_ms = max(1, min(next_in_ms, due_in_ms))
        return outcome._replace(next_in_ms=next_in_ms)

    # Partitions with a state, changed by an operator while the group is empty

    def add_initialized(self, topic_id: bytes, name: str, partitions: Collection[int]) -> None:
        """Notes that partitions have a state now. Raises NotSaved."""
        had = self.initialized[topic_id].partitions if topic_id in self.initialized else frozenset()
        topic = TopicState(name, had.union(partitions))
        self._set_initialized({**self.initialized, topic_id: topic})

    def remove_initialized(self, topic_ids: Collection[bytes]) -> None:
        """Notes that topics have no states any more. Raises NotSaved."""
        self._set_initialized({one: topic for one, topic in self.initialized.items() if one not in topic_ids})

    def _set_initialized(self, initialized: Mapping[bytes, TopicState]) -> None:
        draft = self._draft()
        draft.set_initialized(initialized)
        self._write(draft)

    # Offsets: a share group has none that clients commit

    def check_commit(self, identity: Identity, epoch: int, version: int) -> CommitCheck | None:
        self._refuse()

    def check_transactional_commit(self, identity: Identity, epoch: int) -> CommitCheck | None:
        self._refuse()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anyone may find that there are none."""

    def _refuse(self) -> NoReturn:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.group_id!r} is a share group: it has no committed offsets")

    # Deadlines

    def timed_out(self, kind: str, member_id: str) -> None:
        try:
            draft = self._draft()
            if kind == REFRESH:
                heartbeat.refresh(draft)
            elif member_id in self._replayed.members:
                heartbeat.remove(draft, member_id)
            self._write(draft)
        except Refused:
            self._ports.timers.set(self._timer(kind, member_id), RETRY_MS)

    def refresh_soon(self) -> None:
        """Decides, in the next turn, what a change of topics means for the group."""
        self._ports.timers.set(self._timer(REFRESH), 0)

    def resume(self) -> None:
        """Restarts all deadlines, after a restart of the broker."""
        timeout_ms = self._ports.settings(self.group_id).session_timeout_ms
        for member_id in self.members:
            self._ports.timers.set(self._timer(SESSION, member_id), timeout_ms)
        self._index()
        self.refresh_soon()

    def refuse_waiting(self) -> None:
        """Nothing waits."""

    def _timer(self, kind: str, member_id: str = "") -> Timer:
        return Timer(self.group_id, kind, member_id)

    # The log

    def _draft(self) -> ShareDraft:
        ports = self._ports
        return ShareDraft(self._replayed, ports.settings(self.group_id), ports.topics, ports.now_ms())

    def _write(self, draft: ShareDraft) -> None:
        """Gives new partitions a state, writes what has changed as one batch, and sets the deadlines that follow from
        it. Raises Refused.
        """
        if not draft.changes:
            return
        for topic_id, partitions in draft.new_partitions.items():
            self._ports.share_state().initialize(self.group_id, topic_id, partitions, draft.state.epoch)
        self._ports.write(self.group_id, draft.changes)
        for change in draft.changes:
            if isinstance(change, ShareMemberChanged) and change.value is None:
                self._ports.timers.cancel(self._timer(SESSION, change.member_id))
        self._index()
        if (due_in_ms := draft.assignment_due_in_ms) is not None:
            self._ports.timers.set(self._timer(REFRESH), due_in_ms)

    def _index(self) -> None:
        """Topics with a state count, too: the group learns of their end although no member subscribes to them."""
        names = {topic.name for topic in self.initialized.values()}
        self._ports.readers.set(self.group_id, names.union(self._replayed.subscribers), ())

    def replay(self, change: ShareChange) -> None:
        """Applies a record: the only way in which the group changes, while running and at the start."""
        self.is_saved = True
        growth = self._growth(change) if isinstance(change, ShareMemberChanged) else 0
        topics = len(self._replayed.subscribers)
        self._replayed.replay(change)
        self._ports.held.bytes += growth + TOPIC_BYTES * (len(self._replayed.subscribers) - topics)

    def _growth(self, change: ShareMemberChanged) -> int:
        before = self.members.get(change.member_id)
        had = _size_of(change.member_id, before.details if before is not None else None)
        return _size_of(change.member_id, change.value) - had

    def tombstones(self) -> list[Change]:
        """Returns what removes the group from the log, once it has no members."""
        if not self.is_saved:
            return []
        group_id = self.group_id
        return [
            ShareTargetEpochChanged(group_id, None),
            StatePartitionsChanged(group_id, None),
            ShareEpochChanged(group_id, None),
        ]

    def end(self) -> None:
        """Removes the states of the partitions, before the group is removed. Raises Refused."""
        self._ports.share_state().deleted(self.group_id)


def _size_of(member_id: str, details: ShareMemberValue | None) -> int:
    """The approximate size of what a member makes the broker keep; 0 without details."""
    if details is None:
        return 0
    return size_of_texts((member_id, details.rack_id, details.client_id), details.subscribed_names)
