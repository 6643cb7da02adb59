"""One classic group: its state machine of joins, assignments, leaves and expired sessions.

    Empty ──join──▶ PreparingRebalance ──all have joined, or timeout──▶ CompletingRebalance ──the leader sends──▶ Stable
      ▲                 ▲        │                                               │            the assignment        │
      └── no member ────┼────────┘                                               │                                  │
          left          └── a member joins, leaves or falls silent ──────────────┴──────────────────────────────────┘

A rebalance collects a JoinGroup from every member, chooses a leader and a generation, and waits for the leader's
`SyncGroup` with the assignment. Once that is saved, the group is stable. A member that does not join in time is
removed, except for static members, which may return while their session lasts.

Events are the methods that the coordinator calls; time comes from `Timers`; an error is raised (`Refused`), and a
response that has to wait is parked. All state except parked responses can be restored by a replay of the log.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.members import (
    Joined,
    JoinedMember,
    JoinRequest,
    Member,
    MemberIdRequired,
    ParkedJoin,
    ParkedSync,
    Synced,
)
from tailrace.broker.groups.classic.snapshots import restored_member, saved_group
from tailrace.broker.groups.classic.state import TRANSITIONS, GroupSettings, Ports, State
from tailrace.broker.groups.classic.subscription import CONSUMER, subscribed_topics
from tailrace.broker.groups.group import NOT_A_MEMBER, CommitCheck, Identity
from tailrace.broker.groups.records import Change, GroupMetadataValue, GroupRemoved, NotSaved
from tailrace.broker.groups.timers import Timer
from tailrace.protocol.errors import ErrorCode

SESSION, JOIN, SYNC = "session", "join", "sync"  # kinds of deadlines
PENDING_MAX = 10_000  # members that got an id and have not joined with it yet
TIMERS_MAX = 500_000  # members, and pending ones, of all groups
NAME_MAX = 255  # characters of the client id in a member id
HELD_BYTES_MAX = 256 << 20  # of metadata that members send when they join, over all groups
RETRY_MS = 1_000  # shortest pause between two checks for a returning static member


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, settings: GroupSettings, ports: Ports) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()  # member ids that were assigned and have not joined yet
        self.is_saved = False  # whether the log has it
        self._static: dict[str, str] = {}  # member ids by instance id
        self._supporters: Counter[str] = Counter()  # number of members by protocol
        self._grace_ms: int | None = None  # remaining time that the first rebalance may wait for new members
        self._has_newcomer = False
        self._settings = settings
        self._ports = ports
        self._timers = ports.timers

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def client_of(self, member_id: str) -> str | None:
        member = self.members.get(member_id)
        return member.client_id if member is not None else None

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member has subscribed to the topic; in doubt, True."""
        if not self.members:
            return False
        subscriptions = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
        if self.protocol_type != CONSUMER or self.protocol is None:
            return True
        return any(topics is None or topic in topics for topics in subscriptions)

    # JoinRequest

    def join(self, joining: JoinRequest) -> ParkedJoin | Joined:
        identity = joining.identity
        is_known = identity.member_id in self.members or identity.instance_id in self._static
        if not is_known and len(self.members) >= self._settings.size_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {self.group_id} has reached group.max.size")
        if self._ports.held.bytes > HELD_BYTES_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the members of all groups hold too much memory")
        if not self._supports(joining):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members support none of these protocols")
        if not identity.member_id:
            return self._join_first(joining)
        if identity.member_id in self.pending and identity.instance_id is None:
            return self._add(identity.member_id, joining)
        return self._rejoin(self._member(identity), joining)

    def _supports(self, joining: JoinRequest) -> bool:
        if not joining.protocol_type or not joining.protocols:
            return False
        if not self.members:
            return True
        everyone = len(self.members)
        return joining.protocol_type == self.protocol_type and any(
            self._supporters[name] == everyone for name, _ in joining.protocols
        )

    def _join_first(self, joining: JoinRequest) -> ParkedJoin | Joined:
        instance_id = joining.identity.instance_id
        member_id = f"{(instance_id or joining.client_id)[:NAME_MAX]}-{self._ports.random_id()}"
        if instance_id in self._static:
            return self._take_over(self.members[self._static[instance_id]], member_id, joining)
        if instance_id is None and joining.must_know_id:
            if len(self.pending) >= PENDING_MAX or len(self._timers) >= TIMERS_MAX:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many members are joining")
            self.pending.add(member_id)
            self._timers.set(self._session_of(member_id), joining.session_timeout_ms)
            raise MemberIdRequired(member_id)
        return self._add(member_id, joining)

    def _add(self, member_id: str, joining: JoinRequest) -> ParkedJoin:
        if not self.members:
            self.protocol_type = joining.protocol_type
        self.pending.discard(member_id)
        member = Member(member_id, joining)
        self._enter(member)
        self.leader = self.leader or member_id
        self._has_newcomer = True
        return self._join_rebalance(member)

    def _rejoin(self, member: Member, joining: JoinRequest) -> ParkedJoin | Joined:
        is_same = member.protocols == joining.protocols
        is_leader = member.member_id == self.leader
        if is_same and (self.state is State.COMPLETING or (self.state is State.STABLE and not is_leader)):
            self.keep_alive(member)  # the response was lost on the way: nothing has changed
            return self._joined(member)
        self._change(member, joining)
        return self._join_rebalance(member)

    def _take_over(self, member: Member, member_id: str, joining: JoinRequest) -> ParkedJoin | Joined:
        """Replaces a static member that has returned under a new id. If its subscription is unchanged, there is no
        rebalance.
        """
        former_id, was_leader = member.member_id, member.member_id == self.leader
        self._leave_behind(member, ErrorCode.FENCED_INSTANCE_ID)
        member.member_id = member_id
        self._enter(member)
        self.leader = member_id if was_leader else self.leader
        self._change(member, joining)
        if self.state is not State.STABLE or self._vote() != self.protocol:
            return self._join_rebalance(member)
        self.keep_alive(member)
        self._ports.save(self.group_id, saved_group(self))  # if that fails, it has to join again
        joined = self._joined(member)
        if not was_leader:
            return joined
        if joining.can_skip_assignment:
            return joined._replace(skip_assignment=True)
        return joined._replace(leader=former_id, members=())  # so that it does not compute a new assignment

    def _join_rebalance(self, member: Member) -> ParkedJoin:
        member.answer_join(ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier JoinGroup of the same member
        parked: ParkedJoin = ParkedJoin(partial(self._gone, member))
        member.join = parked
        member.has_joined = True
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._rebalance()
        return parked

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        everyone = (
            JoinedMember(other.member_id, other.instance_id, other.metadata(self.protocol))
            for other in (self.members.values() if is_leader else ())
        )
        assert self.protocol is not None
        assert self.leader is not None
        return Joined(
            self.generation, self.protocol_type, self.protocol, self.leader, member.member_id, tuple(everyone)
        )

    # A rebalance

    def _rebalance(self) -> None:
        """Begins a rebalance: every member has to join again."""
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(self._timer(SYNC))
        was_empty = self.state is State.EMPTY
        self._go_to(State.PREPARING)
        if was_empty:
            self._has_newcomer = False
            self._grace_ms = max(0, self._rebalance_timeout_ms - self._settings.initial_delay_ms)
            self._timers.set(self._timer(JOIN), self._settings.initial_delay_ms)
            if not self._settings.initial_delay_ms:
                self._join_is_due()
        else:
            self._timers.set(self._timer(JOIN), self._rebalance_timeout_ms)
            self._complete_if_all_joined()

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _join_is_due(self) -> None:
        """Handles the join deadline. The first rebalance of a group is extended as long as new members keep joining."""
        if self._grace_ms and self._has_newcomer:
            delay_ms = min(self._settings.initial_delay_ms, self._grace_ms)
            self._grace_ms -= delay_ms
            self._has_newcomer = False
            self._timers.set(self._timer(JOIN), delay_ms)
        else:
            self._complete_join()

    def _complete_if_all_joined(self) -> None:
        is_waiting = self._grace_ms is not None or self.pending
        if not is_waiting and all(member.has_joined for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        self._grace_ms = None
        for member in list(self.members.values()):
            if not member.has_joined and member.instance_id is None:
                self._leave_behind(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.members and not self._has_leader():
            # only static members, none of which has returned
            self._timers.set(self._timer(JOIN), max(RETRY_MS, self._rebalance_timeout_ms))
            return
        self._timers.cancel(self._timer(JOIN))
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self._go_to(State.EMPTY)
            self._save()
            return
        self.protocol = self._vote()
        self._go_to(State.COMPLETING)
        self._timers.set(self._timer(SYNC), self._rebalance_timeout_ms)
        for member in self.members.values():
            member.has_synced = False
            if member.has_joined:
                member.has_joined = False
                self.keep_alive(member)
                member.answer_join(self._joined(member))

    def _has_leader(self) -> bool:
        """Chooses a leader among the members that have joined. Returns False if there are none."""
        if self.leader is None or not self.members[self.leader].has_joined:
            joined = (member.member_id for member in self.members.values() if member.has_joined)
            self.leader = next(joined, self.leader)
        return self.leader is not None and self.members[self.leader].has_joined

    def _vote(self) -> str:
        """Returns the protocol that most members prefer, of those that all of them support."""
        everyone = len(self.members)
        known = {name for name, supporters in self._supporters.items() if supporters == everyone}
        votes = Counter(next(name for name, _ in member.protocols if name in known) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # Assignment

    def sync(
        self,
        identity: Identity,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> ParkedSync | Synced:
        member = self._member_of(identity, generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "this is not the protocol of the group")
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        member.has_synced = True
        if self.state is State.STABLE:
            self.keep_alive(member)
            return self._synced(member)
        member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier SyncGroup of the same member
        parked: ParkedSync = ParkedSync(partial(self._gone, member))
        member.sync = parked
        if member.member_id == self.leader:
            self._assign(assignments)
        return parked

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        if not self._save():
            self._refuse_syncs(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._rebalance()
            return
        for member in self.members.values():
            self.keep_alive(member)
            member.answer_sync(self._synced(member))

    def _refuse_syncs(self, why: ErrorCode) -> None:
        """Refuses all parked SyncGroups. Their members' sessions count again from now on."""
        for member in self.members.values():
            if member.sync is not None:
                self.keep_alive(member)
                member.answer_sync(why)

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol or "", member.assignment)

    def _sync_is_due(self) -> None:
        """Removes the members that joined the rebalance, and have not sent a SyncGroup in time."""
        late = [member for member in self.members.values() if not member.has_synced]
        for member in late:
            self._leave_behind(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if late:
            self._rebalance()

    # Heartbeats and offsets

    def heartbeat(self, identity: Identity, generation: int) -> None:
        member = self._member_of(identity, generation)
        self.keep_alive(member)
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")

    def keep_alive(self, member: Member) -> None:
        self._timers.set(self._session_of(member.member_id), member.session_timeout_ms)

    def check_commit(self, identity: Identity, generation: int, version: int) -> CommitCheck | None:
        """Raises Refused for a client that may not commit offsets: members may, and any client while the group is
        empty.
        """
        if generation < 0 and self.state is State.EMPTY:
            return None
        member = self._member_of(identity, generation)
        if self.state is State.COMPLETING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")
        self.keep_alive(member)
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Any client may read the offsets."""

    def check_transactional_commit(self, identity: Identity, generation: int) -> CommitCheck | None:
        """Raises Refused for a client that may not commit offsets in a transaction: while the group has members, a
        client that says which one it is must be that one. Others may.
        """
        if generation >= 0 or not (self.state is State.EMPTY or identity == NOT_A_MEMBER):
            self.keep_alive(self._member_of(identity, generation))
        return None

    def leave(self, identity: Identity) -> None:
        if identity.member_id in self.pending:
            self._forget_pending(identity.member_id)
            return
        member_id = identity.member_id
        if not member_id and identity.instance_id is not None:  # an operator removes it, by its instance id
            member_id = self._static.get(identity.instance_id, "")
        member = self._member(Identity(member_id, identity.instance_id))
        self._leave_behind(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._has_fewer()

    def timed_out(self, kind: str, member_id: str) -> None:
        if kind == JOIN:
            self._join_is_due()
        elif kind == SYNC:
            self._sync_is_due()
        elif member_id in self.pending:
            self._forget_pending(member_id)
        elif (member := self.members.get(member_id)) is not None and not member.is_parked:
            self._leave_behind(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._has_fewer()

    def _gone(self, member: Member, parked: ParkedJoin | ParkedSync) -> None:
        """Handles a connection that was closed while the member waited. The member may return until its session
        expires. If it has returned, and waits for another response, nothing changes.
        """
        if parked is member.join:
            member.join = None
        elif parked is member.sync:
            member.sync = None
        else:
            return
        self.keep_alive(member)

    # Members

    def _member_of(self, identity: Identity, generation: int) -> Member:
        member = self._member(identity)
        if generation != self.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"group {self.group_id} is in generation {self.generation}")
        return member

    def _member(self, identity: Identity) -> Member:
        if identity.instance_id is not None:
            current = self._static.get(identity.instance_id)
            if current is not None and current != identity.member_id:
                raise Refused(
                    ErrorCode.FENCED_INSTANCE_ID, f"another member has taken over instance id {identity.instance_id}"
                )
            if current is None:
                raise Refused(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.group_id} has no member with instance id {identity.instance_id}",
                )
        member = self.members.get(identity.member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no such member")
        return member

    def _enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def _change(self, member: Member, joining: JoinRequest) -> None:
        self._count(member, -1)
        member.update(joining)
        self._count(member, 1)

    def _count(self, member: Member, one: int) -> None:
        """Counts the protocols of a member, and the memory it holds, or with -1 takes them off."""
        self._ports.held.bytes += one * member.size
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += one
            if not self._supporters[name]:
                del self._supporters[name]

    def _leave_behind(self, member: Member, why: ErrorCode) -> None:
        """Removes a member. If a response of it is parked, it gets the error `why`."""
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if member.member_id == self.leader:
            self.leader = next(iter(self.members), None)
        self._timers.cancel(self._session_of(member.member_id))
        member.answer_join(why)
        member.answer_sync(why)

    def _forget_pending(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self._timers.cancel(self._session_of(member_id))
        if self.state is State.PREPARING:
            self._complete_if_all_joined()

    def _has_fewer(self) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._rebalance()

    # The log

    def _save(self) -> bool:
        try:
            self._ports.save(self.group_id, saved_group(self))
        except NotSaved:
            return False
        return True

    def replay(self, value: GroupMetadataValue) -> None:
        """Restores the group as it was saved: the only way into `Stable`, while running and at the start."""
        for member_id in self.members.keys() - {saved.member_id for saved in value.members}:
            self._leave_behind(self.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        for saved in value.members:
            if (member := self.members.get(saved.member_id)) is None:
                member = restored_member(saved, value)
                self._enter(member)
            member.assignment = saved.assignment
        self.is_saved = True
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state = State.STABLE if value.members else State.EMPTY

    def tombstones(self) -> list[Change]:
        """Returns what removes the group from the log."""
        return [GroupRemoved(self.group_id)] if self.is_saved else []

    def dissolve(self) -> None:
        """Ends the group, in whose place another one has taken its members."""
        for member in list(self.members.values()):
            self._leave_behind(member, ErrorCode.REBALANCE_IN_PROGRESS)
        for member_id in self.pending:
            self._timers.cancel(self._session_of(member_id))
        self._timers.cancel(self._timer(JOIN))
        self._timers.cancel(self._timer(SYNC))

    def rebalance_with(self, protocols: Mapping[str, tuple[tuple[str, bytes], ...]]) -> None:
        """Begins with members that another group has left: their protocols are not in the record."""
        for member in self.members.values():
            self._count(member, -1)
            member.protocols = protocols[member.member_id]
            self._count(member, 1)
            self.keep_alive(member)
        self._rebalance()

    def resume(self) -> None:
        """Restarts the sessions of all members, after a restart of the broker."""
        for member in self.members.values():
            self.keep_alive(member)

    def refuse_waiting(self) -> None:
        """Makes all waiting members look for another coordinator, because the broker is about to stop."""
        for member in self.members.values():
            member.answer_join(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            member.answer_sync(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # Helpers

    def _go_to(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"from {self.state} to {state}"
        self.state = state

    def _timer(self, kind: str) -> Timer:
        return Timer(self.group_id, kind)

    def _session_of(self, member_id: str) -> Timer:
        return Timer(self.group_id, SESSION, member_id)
