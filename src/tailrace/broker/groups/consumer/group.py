"""A consumer group as the coordinator sees it: decides on drafts, has them written, and sets deadlines.

    session     a member has not been heard of for the session timeout: it is removed
    rebalance   a member has not given up partitions for its rebalance timeout: it is removed
    join, sync  a member of the classic protocol has not joined again, or not asked for its assignment, in time
    refresh     topics have changed, or a new target is due

`beat` serves members of the consumer protocol; `join`, `sync`, `heartbeat` and `leave` those of the classic protocol,
with which a group changes its protocol while its members keep working (`migration`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.group import HELD_BYTES_MAX, JOIN, NAME_MAX, SYNC, TIMERS_MAX, ClassicGroup
from tailrace.broker.groups.classic.members import Joined, JoinRequest, MemberIdRequired, Synced
from tailrace.broker.groups.classic.state import HeldBytes
from tailrace.broker.groups.classic.subscription import CONSUMER
from tailrace.broker.groups.consumer import classic_members, heartbeat, migration
from tailrace.broker.groups.consumer.draft import Catalog, ConsumerSettings, Draft, assignor_of
from tailrace.broker.groups.consumer.heartbeat import Heartbeat, Outcome
from tailrace.broker.groups.consumer.state import GroupPhase, GroupState, Member, MemberState
from tailrace.broker.groups.consumer.topic_index import TopicIndex
from tailrace.broker.groups.consumer_records import (
    ConsumerChange,
    MemberAssignmentChanged,
    MemberChanged,
    MemberValue,
    PatternResolved,
)
from tailrace.broker.groups.group import NOT_A_MEMBER, CommitCheck, Identity
from tailrace.broker.groups.records import Change, NotSaved
from tailrace.broker.groups.timers import Timer, Timers
from tailrace.protocol.errors import ErrorCode

SESSION, REBALANCE, REFRESH = "session", "rebalance", "refresh"  # kinds of deadlines
RETRY_MS = 1_000  # after a write that has failed
MEMBER_EPOCHS_FROM = 9  # of OffsetCommit
NAME_BYTES = 100  # of a name that a member subscribes to, besides its characters
TOPIC_BYTES = 300  # of a name in the indexes of a group


class ConsumerPorts(NamedTuple):
    """The group's interface to the coordinator. `write` appends changes to the log and replays them; it raises NotSaved
    if that fails. `downgraded` is called with the members when that has made a classic group of this one.
    """

    timers: Timers
    write: Callable[[str, Sequence[Change]], None]
    catalog: Catalog
    settings: Callable[[str], ConsumerSettings]
    now_ms: Callable[[], int]
    topics: TopicIndex
    held: HeldBytes
    random_id: Callable[[], str]
    downgraded: Callable[[str, Mapping[str, Member]], None]


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, ports: ConsumerPorts) -> None:
        self.group_id = group_id
        self.is_saved = False  # whether the log has it
        self._replayed = GroupState(group_id)
        self._ports = ports

    # What others may know

    @property
    def state(self) -> GroupPhase:
        return self._replayed.phase

    @property
    def replayed(self) -> GroupState:
        """The group as the log has it. Must not be changed."""
        return self._replayed

    @property
    def members(self) -> dict[str, Member]:
        """By member id. Must not be changed."""
        return self._replayed.members

    @property
    def is_empty(self) -> bool:
        return not self._replayed.members

    @property
    def settings(self) -> ConsumerSettings:
        return self._ports.settings(self.group_id)

    @property
    def assignor(self) -> str:
        return assignor_of(self._replayed, self.settings)

    def client_of(self, member_id: str) -> str | None:
        member = self.members.get(member_id)
        return member.details.client_id if member is not None else None

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._replayed.topics

    # Heartbeats

    def beat(self, beat: Heartbeat, former: ClassicGroup | None = None) -> Outcome:
        """A member joins, stays or leaves. `former` is the classic group that this one, which is new, takes the place
        of. Raises Refused.
        """
        if (unchanged := heartbeat.unchanged(self._replayed, beat)) is not None:  # most heartbeats, by far
            self._ports.timers.set(Timer(self.group_id, SESSION, beat.member_id), self.settings.session_timeout_ms)
            return unchanged
        draft = self._draft()
        if former is not None and former.members:
            migration.upgrade(former, draft, draft.settings.migration_policy)
        outcome = heartbeat.leave(draft, beat) if beat.is_leaving else heartbeat.beat(draft, beat)
        self._check_room(draft)
        self._write(draft, former.tombstones() if former is not None else ())
        if not beat.is_leaving:
            self._ports.timers.set(self._timer(SESSION, outcome.member_id), draft.settings.session_timeout_ms)
        return outcome

    def _check_room(self, draft: Draft) -> None:
        """Raises Refused if the members of all groups hold too much memory, or are too many, and the draft adds to
        that.
        """
        if self._ports.held.bytes <= HELD_BYTES_MAX and len(self._ports.timers) < TIMERS_MAX:
            return
        if sum(self._growth(change) for change in draft.changes if isinstance(change, MemberChanged)) > 0:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the members of all groups hold too much memory")

    def _growth(self, change: MemberChanged) -> int:
        before = self.members.get(change.member_id)
        return size_of(change.member_id, change.value) - size_of(
            change.member_id, before.details if before is not None else None
        )

    # Members of the classic protocol

    def join(self, joining: JoinRequest) -> Joined:
        """A member of the classic protocol joins, or takes its next step. Raises Refused."""
        identity = joining.identity
        member_id = identity.member_id
        if not member_id:
            member_id = f"{(identity.instance_id or joining.client_id)[:NAME_MAX]}-{self._ports.random_id()}"
            if joining.must_know_id and identity.instance_id is None:
                raise MemberIdRequired(member_id)
        draft = self._draft()
        joined = classic_members.join(draft, joining, member_id)
        self._check_room(draft)
        if self._write(draft):
            return joined  # to a classic group, which sets deadlines of its own
        self._ports.timers.set(self._timer(SESSION, member_id), joining.session_timeout_ms)
        self._ports.timers.set(self._timer(SYNC, member_id), joining.rebalance_timeout_ms)
        self._ports.timers.cancel(self._timer(JOIN, member_id))
        return joined

    def sync(
        self,
        identity: Identity,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """Returns the assignment of a member of the classic protocol; the broker computes it. Raises Refused."""
        member = self._classic_member(identity, generation)
        first = classic_members.protocol_of(member)
        if protocol_type not in (None, CONSUMER) or protocol not in (None, first):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "this is not the protocol of the member")
        state = self._replayed
        if member.current.epoch < state.assignment_epoch and member.current.state is not MemberState.UNREVOKED:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        self._ports.timers.cancel(self._timer(SYNC, member.member_id))
        return Synced(CONSUMER, first, classic_members.assignment_of(member, self._ports.catalog))

    def heartbeat(self, identity: Identity, generation: int) -> None:
        """Keeps a member of the classic protocol. Raises Refused, also if it has to join again."""
        member = self._classic_member(identity, generation)
        if classic_members.must_join_again(self._replayed, member, self._ports.catalog):
            timer = self._timer(JOIN, member.member_id)
            if not self._ports.timers.is_set(timer):
                self._ports.timers.set(timer, member.details.rebalance_timeout_ms)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")

    def _classic_member(self, identity: Identity, generation: int) -> Member:
        member = heartbeat.find(self._replayed, identity.member_id, identity.instance_id)
        if not member.is_classic:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the member does not speak the classic protocol")
        classic_members.check_generation(member, generation)
        self._ports.timers.set(self._timer(SESSION, member.member_id), self._session_ms(member))
        return member

    def leave(self, identity: Identity) -> None:
        """A member of the classic protocol leaves, or an operator removes a member, a static one by its instance id.
        Raises Refused.
        """
        member_id, instance_id = identity
        if not member_id and instance_id is not None:
            member_id = self._replayed.static.get(instance_id, "")
        member = heartbeat.find(self._replayed, member_id, instance_id)
        draft = self._draft()
        heartbeat.remove(draft, [member.member_id])
        self._write(draft)

    # Offsets

    def check_commit(self, identity: Identity, epoch: int, version: int) -> CommitCheck | None:
        """Returns a check for each partition, None if all may be committed. Raises Refused for a client that may not
        commit: members may, and any client while the group is empty.
        """
        if epoch < 0 and self.is_empty:
            return None
        member = heartbeat.find(self._replayed, identity.member_id, None)
        if not member.is_classic and version < MEMBER_EPOCHS_FROM:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"a member of {self.group_id} commits with version 9 or later")
        return _commit_check(member, epoch, self._stale(member, epoch))

    def check_transactional_commit(self, identity: Identity, epoch: int) -> CommitCheck | None:
        """Does what `check_commit` does; only a client that says which member it is must be that one. There is no
        version of TxnOffsetCommit that knows STALE_MEMBER_EPOCH.
        """
        if epoch < 0 and (self.is_empty or identity == NOT_A_MEMBER):
            return None
        member = heartbeat.find(self._replayed, identity.member_id, None)
        stale = Refused(ErrorCode.ILLEGAL_GENERATION, self._stale(member, epoch).message)
        return _commit_check(member, epoch, stale)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises Refused for a member that is none, or has not seen its epoch yet. A client that does not claim to be a
        member may read offsets.
        """
        if member_id is None and epoch < 0:
            return
        member = heartbeat.find(self._replayed, member_id or "", None)
        if epoch != member.current.epoch:
            raise self._stale(member, epoch)

    def _stale(self, member: Member, epoch: int) -> Refused:
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return Refused(code, f"the member is at epoch {member.current.epoch}, not {epoch}")

    # Deadlines

    def timed_out(self, kind: str, member_id: str) -> None:
        try:
            if kind == REFRESH:
                self._refresh()
            elif member_id in self._replayed.members:
                draft = self._draft()
                heartbeat.remove(draft, [member_id])
                self._write(draft)
        except NotSaved:
            self._ports.timers.set(self._timer(kind, member_id), RETRY_MS)

    def _refresh(self) -> None:
        draft = self._draft()
        heartbeat.refresh(draft)
        self._write(draft)

    def refresh_soon(self) -> None:
        """Topics have changed that the group may read."""
        self._ports.timers.set(self._timer(REFRESH), 0)

    def resume(self) -> None:
        """Restarts all deadlines, after a restart of the broker."""
        state = self._replayed
        for member in state.members.values():
            self._ports.timers.set(self._timer(SESSION, member.member_id), self._session_ms(member))
            self._set_rebalance_timer(member)
        self._index()
        if state.members:
            self.refresh_soon()

    def refuse_waiting(self) -> None:
        """Nothing waits."""

    def _session_ms(self, member: Member) -> int:
        classic = member.details.classic
        return classic.session_timeout_ms if classic is not None else self.settings.session_timeout_ms

    def _set_rebalance_timer(self, member: Member) -> None:
        timer = self._timer(REBALANCE, member.member_id)
        if member.current.state is MemberState.UNREVOKED:
            self._ports.timers.set(timer, max(0, member.details.rebalance_timeout_ms))
        else:
            self._ports.timers.cancel(timer)

    def _timer(self, kind: str, member_id: str = "") -> Timer:
        return Timer(self.group_id, kind, member_id)

    # The log

    def _draft(self) -> Draft:
        ports = self._ports
        return Draft(self._replayed, ports.settings(self.group_id), ports.catalog, ports.now_ms())

    def _write(self, draft: Draft, before: Sequence[Change] = ()) -> bool:
        """Writes what has changed as one batch, behind other changes, and sets the deadlines that follow from it.
        Returns whether that has made a classic group of this one. Raises NotSaved.
        """
        if not draft.changes:
            return False
        if migration.is_downgrade_due(draft.state, draft.settings.migration_policy):
            self._downgrade(draft)
            return True
        self._ports.write(self.group_id, [*before, *draft.changes])
        self._set_timers(draft.changes)
        if (due_in_ms := draft.assignment_due_in_ms) is not None:
            self._ports.timers.set(self._timer(REFRESH), due_in_ms)
        return False

    def _downgrade(self, draft: Draft) -> None:
        members = draft.state.members
        changes = [*draft.changes, *migration.downgrade(draft.state, self._replayed.epoch, self._ports.catalog)]
        former = self._replayed.members.keys() | members.keys()
        self._ports.write(self.group_id, changes)
        for member_id in former:
            for kind in (SESSION, REBALANCE, JOIN, SYNC):
                self._ports.timers.cancel(self._timer(kind, member_id))
        self._ports.timers.cancel(self._timer(REFRESH))
        self._ports.topics.set(self.group_id, (), ())
        self._ports.downgraded(self.group_id, members)

    def _set_timers(self, changes: Sequence[ConsumerChange]) -> None:
        has_new_topics = False
        for change in changes:
            match change:
                case MemberChanged(_, member_id, None):
                    for kind in (SESSION, REBALANCE, JOIN, SYNC):
                        self._ports.timers.cancel(self._timer(kind, member_id))
                    has_new_topics = True
                case MemberChanged() | PatternResolved():
                    has_new_topics = True
                case MemberAssignmentChanged(_, member_id, value) if value is not None:
                    if (member := self._replayed.members.get(member_id)) is not None:
                        self._set_rebalance_timer(member)
        if has_new_topics:
            self._index()

    def _index(self) -> None:
        state = self._replayed
        self._ports.topics.set(self.group_id, state.topics, tuple(state.pattern_subscribers))

    def replay(self, change: ConsumerChange) -> None:
        """Applies a record: the only way in which the group changes, while running and at the start."""
        self.is_saved = True
        growth = self._growth(change) if isinstance(change, MemberChanged) else 0
        topics = len(self._replayed.name_subscribers)
        self._replayed.replay(change)
        self._ports.held.bytes += growth + TOPIC_BYTES * (len(self._replayed.name_subscribers) - topics)

    def tombstones(self) -> list[Change]:
        """Returns what removes the group from the log, once it has no members."""
        return migration.tombstones(self._replayed)


def size_of(member_id: str, details: MemberValue | None) -> int:
    """The approximate size of what a member makes the broker keep; 0 without details."""
    if details is None:
        return 0
    texts = (member_id, details.instance_id, details.rack_id, details.client_id, details.subscribed_pattern)
    size = sum(len(text or "") for text in texts)
    size += sum(map(len, details.subscribed_names)) + NAME_BYTES * len(details.subscribed_names)
    if details.classic is not None:
        size += sum(len(one.name) + len(one.metadata) for one in details.classic.protocols)
    return size


def _commit_check(member: Member, epoch: int, stale: Refused) -> CommitCheck | None:
    """Returns a check for each partition, None if all may be committed. Raises `stale` for an epoch to come."""
    current = member.current
    if epoch == current.epoch:
        return None
    if epoch > current.epoch:
        raise stale

    def check(topic_id: bytes, index: int) -> ErrorCode:
        """What was assigned by then, and still is, may be committed by a member that has not seen its epoch yet."""
        partition = topic_id, index
        since = current.assigned.get(partition, current.pending.get(partition))
        return ErrorCode.NONE if since is not None and since <= epoch else stale.code

    return check
