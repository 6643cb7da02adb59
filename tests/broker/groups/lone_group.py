"""A group without a coordinator: its clock, its disk and its members are the test's.

lone = LoneGroup()
a, b = lone.stable("a", "b")
b.leave()
assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.members import Joined, JoinRequest, MemberIdRequired, Synced
from tailrace.broker.groups.classic.state import GroupSettings, HeldBytes, Ports
from tailrace.broker.groups.group import Identity
from tailrace.broker.groups.records import GroupMetadataValue, NotSaved
from tailrace.broker.groups.timers import Timers
from tailrace.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Asked:
    """What became of a request: `answer` is None while it waits."""

    def __init__(self, ask: Callable[[], Any], told: Callable[[Any], None] = lambda answer: None) -> None:
        self.answer: Any = None
        self.later: DelayedResponse[Any] | None = None
        self._told = told
        try:
            answer = ask()
        except Refused as error:
            self._tell(error.code)
            return
        if isinstance(answer, DelayedResponse):
            self.later = answer
            answer.when_resolved(self._tell)
        else:
            self._tell(answer)

    def _tell(self, answer: Any) -> None:
        assert self.answer is None, "answered twice"
        self.answer = answer
        self._told(answer)

    @property
    def is_waiting(self) -> bool:
        return self.answer is None

    def abandon(self) -> None:
        """The connection is gone."""
        assert self.later is not None
        self.later.abandon()


class Someone:
    """One that is a member or wants to be, with what it was told last."""

    def __init__(self, lone: "LoneGroup", name: str, **fields: Any) -> None:
        self.lone = lone
        self.name = name
        self.instance_id: str | None = fields.pop("instance_id", None)
        self.fields = fields
        self.member_id = ""
        self.generation = -1

    @property
    def identity(self) -> Identity:
        return Identity(self.member_id, self.instance_id)

    def join(self, **changes: Any) -> Asked:
        """`changes` stay; `metadata` is for its protocols, whichever they are."""
        self.fields |= changes
        names = self.fields.get("protocols", ("range",))
        metadata = self.fields.get("metadata", b"")
        joining = JoinRequest(
            self.identity,
            self.name,
            "/127.0.0.1",
            self.fields.get("session_ms", SESSION_MS),
            self.fields.get("rebalance_ms", REBALANCE_MS),
            self.fields.get("protocol_type", "consumer"),
            tuple((name, b"%s of %s" % (name.encode(), self.name.encode()) + metadata) for name in names),
            must_know_id=self.fields.get("must_know_id", False),
            can_skip_assignment=self.fields.get("can_skip_assignment", False),
        )
        return Asked(lambda: self._join(joining), self._joined)

    def _join(self, joining: JoinRequest) -> Any:
        try:
            return self.lone.group.join(joining)
        except MemberIdRequired as error:
            self.member_id = error.member_id
            raise

    def _joined(self, answer: Joined | ErrorCode) -> None:
        if isinstance(answer, Joined):
            self.member_id, self.generation = answer.member_id, answer.generation

    def sync(self, assignments: Mapping[str, bytes] | None = None, **named: str) -> Asked:
        """As the leader does it, if there are assignments."""
        protocol_type, protocol = named.get("protocol_type"), named.get("protocol")
        return Asked(
            lambda: self.lone.group.sync(self.identity, self.generation, protocol_type, protocol, assignments or {})
        )

    def heartbeat(self) -> ErrorCode | None:
        return self._code(lambda: self.lone.group.heartbeat(self.identity, self.generation))

    def leave(self) -> ErrorCode | None:
        return self._code(lambda: self.lone.group.leave(self.identity))

    def commit(self) -> ErrorCode | None:
        return self._code(lambda: self.lone.group.check_commit(self.identity, self.generation, 9))

    def _code(self, ask: Callable[[], object]) -> ErrorCode | None:
        return Asked(ask).answer

    @property
    def is_member(self) -> bool:
        return self.member_id in self.lone.group.members


class LoneGroup:
    def __init__(self, *, delay_ms: int = 0, size_max: int = 1_000) -> None:
        self.timers = Timers()
        self.saved: list[GroupMetadataValue] = []
        self.can_save = True
        self._numbers = count(1)
        self.held = HeldBytes()
        ports = Ports(self.timers, self.held, self._save, lambda: str(next(self._numbers)))
        self.group = ClassicGroup("billing", GroupSettings(delay_ms, size_max), ports)

    def _save(self, group_id: str, value: GroupMetadataValue) -> None:
        assert group_id == "billing"
        if not self.can_save:
            raise NotSaved("the disk is full")
        self.saved.append(value)
        self.group.replay(value)

    def restarted(self) -> "LoneGroup":
        """Another process, with what was saved."""
        other = LoneGroup()
        other.saved = list(self.saved)
        other.timers.now = self.timers.now
        other._numbers = count(1_000)
        other.group.replay(self.saved[-1])
        other.group.resume()
        return other

    def someone(self, name: str, **fields: Any) -> Someone:
        return Someone(self, name, **fields)

    def stable(self, *names: str, **fields: Any) -> list[Someone]:
        """Members that work; the first is the leader. A name with `static` in it is of a static member."""
        everyone = [
            self.someone(name, instance_id=name if "static" in name else None, **fields.copy()) for name in names
        ]
        for n, one in enumerate(everyone):
            one.join()
            for earlier in everyone[:n]:
                earlier.join()
        self.share_out(*everyone)
        return everyone

    def share_out(self, *everyone: Someone) -> None:
        """All members ask for their work, the leader last."""
        asked = {one.name: one.sync() for one in everyone if one.member_id != self.group.leader}
        (leader,) = [one for one in everyone if one.member_id == self.group.leader]
        asked[leader.name] = leader.sync({one.member_id: b"work of " + one.name.encode() for one in everyone})
        assert {name: one.answer.assignment for name, one in asked.items()} == {
            one.name: b"work of " + one.name.encode() for one in everyone
        }
        assert all(isinstance(one.answer, Synced) for one in asked.values())

    def wait(self, ms: int) -> None:
        """Time passes, deadline by deadline."""
        end = self.timers.now + ms
        while (deadline := self.timers.next_deadline) is not None and deadline <= end:
            self.timers.now = max(self.timers.now, deadline)
            self.ring()
        self.timers.now = end

    def ring(self) -> None:
        """What is due by now, happens."""
        for _, kind, member_id in self.timers.due():
            self.group.timed_out(kind, member_id)
