"""One classic group: its state machine of joins, assignments, leaves and expired sessions.

    Empty ──join──▶ PreparingRebalance ──all have joined, or time is up──▶ CompletingRebalance ──the leader has shared
      ▲                 ▲        │                                                 │              out the work──▶ Stable
      └── nobody left ──┼────────┘                                                 │                               │
                        └── a member joins, leaves or falls silent ────────────────┴───────────────────────────────┘

A rebalance collects a join of everyone (`JoinGroup`), names a leader and a generation, and waits for the leader's
`SyncGroup`, which says who works on what. That is saved, and with it the group is stable. Whoever does not join in time
is out, but for static members, which may come back for as long as their session lasts.

Events are the methods that the coordinator calls; time comes with `Timers`; an error is raised (`Refused`), and an
answer that has to wait is parked. Nothing is kept here that a replay of what was saved would not bring back, but for
those who wait.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.members import (
    Identity,
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
from tailrace.broker.groups.records import GroupMetadataValue, NotSaved
from tailrace.broker.groups.timers import Timer
from tailrace.protocol.errors import ErrorCode

SESSION, JOIN, SYNC = "session", "join", "sync"  # what is waited for
PENDING_MAX = 10_000  # that were told their id and have not come again
TIMERS_MAX = 500_000  # members, and those about to be, of all groups
NAME_MAX = 255  # characters of a client's name in a member id
HELD_BYTES_MAX = 256 << 20  # of what members say when they join, all groups together
RETRY_MS = 1_000  # at the least, between two looks for a static member that is back


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
        self.pending: set[str] = set()  # ids that were given to those who have not come back yet
        self.is_saved = False  # whether the log knows it
        self._static: dict[str, str] = {}  # member ids by instance id
        self._supporters: Counter[str] = Counter()  # members by the protocols they know
        self._grace_ms: int | None = None  # of the first rebalance: how much longer it may wait for newcomers
        self._has_newcomer = False
        self._settings = settings
        self._ports = ports
        self._timers = ports.timers

    # JoinRequest

    def join(self, joining: JoinRequest) -> ParkedJoin | Joined:
        identity = joining.identity
        is_known = identity.member_id in self.members or identity.instance_id in self._static
        if not is_known and len(self.members) >= self._settings.size_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self.group_id} has all the members it may have")
        if self._ports.held.bytes > HELD_BYTES_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the members of all groups hold too much memory")
        if not self._supports(joining):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group knows none of these protocols")
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
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many are about to join")
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
            self.keep_alive(member)  # the answer was lost on the way: nothing is new
            return self._joined(member)
        self._change(member, joining)
        return self._join_rebalance(member)

    def _take_over(self, member: Member, member_id: str, joining: JoinRequest) -> ParkedJoin | Joined:
        """A static member is back under a new id. Where nothing hangs on it, the others need not know."""
        former_id, was_leader = member.member_id, member.member_id == self.leader
        self._leave_behind(member, ErrorCode.FENCED_INSTANCE_ID)
        member.member_id = member_id
        self._enter(member)
        self.leader = member_id if was_leader else self.leader
        self._change(member, joining)
        if self.state is not State.STABLE or self._vote() != self.protocol:
            return self._join_rebalance(member)
        self.keep_alive(member)
        self._ports.save(self.group_id, saved_group(self))  # where that fails, it has to come again
        joined = self._joined(member)
        if not was_leader:
            return joined
        if joining.can_skip_assignment:
            return joined._replace(skip_assignment=True)
        return joined._replace(leader=former_id, members=())  # so that it does not share out the work anew

    def _join_rebalance(self, member: Member) -> ParkedJoin:
        member.answer_join(ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier one of the same: it is asked for no more
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
        """Afterwards everyone has to join anew."""
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
        """In the first rebalance of a group more members are about to come: as long as they do, it waits."""
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
            # static members, none of which is back
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
        """Afterwards the leader is one who has joined, if anybody has."""
        if self.leader is None or not self.members[self.leader].has_joined:
            joined = (member.member_id for member in self.members.values() if member.has_joined)
            self.leader = next(joined, self.leader)
        return self.leader is not None and self.members[self.leader].has_joined

    def _vote(self) -> str:
        """Of the protocols that everyone knows, the one that most like best."""
        everyone = len(self.members)
        known = {name for name, supporters in self._supporters.items() if supporters == everyone}
        votes = Counter(next(name for name, _ in member.protocols if name in known) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # Sharing out

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
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "this is not the protocol that was chosen")
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")
        member.has_synced = True
        if self.state is State.STABLE:
            self.keep_alive(member)
            return self._synced(member)
        member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier one of the same
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
        """Nobody waits any more; from now on silence counts again."""
        for member in self.members.values():
            if member.sync is not None:
                self.keep_alive(member)
                member.answer_sync(why)

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol or "", member.assignment)

    def _sync_is_due(self) -> None:
        """Who took part in the rebalance and has not asked for its work since is not there any more."""
        late = [member for member in self.members.values() if not member.has_synced]
        for member in late:
            self._leave_behind(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if late:
            self._rebalance()

    # Keeping in touch

    def heartbeat(self, identity: Identity, generation: int) -> None:
        member = self._member_of(identity, generation)
        self.keep_alive(member)
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "join again")

    def keep_alive(self, member: Member) -> None:
        self._timers.set(self._session_of(member.member_id), member.session_timeout_ms)

    def check_commit(self, identity: Identity, generation: int) -> None:
        """Raises Refused where one may not commit offsets: members may, and while there are none, whoever is none."""
        if generation < 0 and self.state is State.EMPTY:
            return
        member = self._member_of(identity, generation)
        if self.state is State.COMPLETING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "who owns what is about to be known")
        self.keep_alive(member)

    def leave(self, identity: Identity) -> None:
        if identity.member_id in self.pending:
            self._forget_pending(identity.member_id)
            return
        member_id = identity.member_id
        if not member_id and identity.instance_id is not None:  # an operator puts it out, by its name
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
        """Its connection was closed while it waited. It has its session to come back; if it is back by now, and waits
        for another answer, that is none of this one's business.
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
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"{self.group_id} is in generation {self.generation}")
        return member

    def _member(self, identity: Identity) -> Member:
        if identity.instance_id is not None:
            current = self._static.get(identity.instance_id)
            if current is not None and current != identity.member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"another one is {identity.instance_id} now")
            if current is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} knows no {identity.instance_id}")
        member = self.members.get(identity.member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{self.group_id} has no such member")
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
        """Adds it to those who know its protocols, or takes it away; and likewise what it holds of our memory."""
        self._ports.held.bytes += one * member.size
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += one
            if not self._supporters[name]:
                del self._supporters[name]

    def _leave_behind(self, member: Member, why: ErrorCode) -> None:
        """Afterwards it is no member; if it waits for an answer, that is `why`."""
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
        """Afterwards the group is as it was saved: the only way into `Stable`, while running and at the start."""
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

    def resume(self) -> None:
        """After a restart: members have a whole session to be heard of."""
        for member in self.members.values():
            self.keep_alive(member)

    def refuse_waiting(self) -> None:
        """Whoever waits has to find another coordinator: the broker is about to stop."""
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
