"""Clients of both protocols come, go, fall silent and return as members of one group, in any order, also under the
instance id that a client of the other protocol had; the broker restarts and is killed. Whatever the order:

    no partition is read by two members
    only members have deadlines, and those of the group's own kind
    a group without members holds no memory of any
    when all are heard of, they share all partitions, under the protocol that they have in common

EXAMPLES=… says how many orders are tried.
"""

import os
from typing import Any

from broker.groups.consumer.test_migration import assignment, new_broker, partitions_of
from consumer_requests import Member, all_of
from group_requests import BILLING, Consumer
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.broker.groups.classic.group import JOIN, SYNC, ClassicGroup
from tailrace.broker.groups.consumer.group import REBALANCE, SESSION, ConsumerGroup
from tailrace.protocol.errors import ErrorCode

EXAMPLES = int(os.environ.get("EXAMPLES", "100"))
PARTITIONS = 4
STEP_MS = 5_000  # between two heartbeats of a client that is not silent
SETTLED_AFTER = 30  # steps: all deadlines have passed
STATIC = ("desk", "till")
CLIENTS_MAX = 5


class Old(Consumer):
    """A client of the classic protocol, which gives up all that it has to join again."""

    def __init__(self, broker: Any, name: str, instance_id: str | None) -> None:
        super().__init__(broker, name, instance_id=instance_id)
        self.owned: set[tuple[str, int]] = set()
        self.waiting: Any = None  # a response
        self.is_fenced = False
        self.next: Any = self._enter

    def step(self) -> None:
        """What it does next, unless it waits for a response."""
        if self.waiting is None or self.waiting.code is not None:
            self.next()

    def connection_is_lost(self) -> None:
        if self.waiting is not None and self.waiting.code is None:
            self.waiting, self.next = None, self._enter

    def _enter(self) -> None:
        self.owned = set()
        self.waiting = self.enter()
        self.next = self._has_joined
        self.step()

    def _begin_anew(self, code: int) -> None:
        self.owned = set()
        self.is_fenced = code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""
        self.waiting, self.next = None, self._enter

    def _has_joined(self) -> None:
        if self.waiting.code:
            self._begin_anew(self.waiting.code)
            return
        work = {}
        if self.is_leader:
            ids = [one.member_id for one in self.joined.members]
            work = {one: assignment(*range(n, PARTITIONS, len(ids))) for n, one in enumerate(ids)}
        self.waiting = self.sync(work)
        self.next = self._has_synced
        self.step()

    def _has_synced(self) -> None:
        if self.waiting.code:
            self._begin_anew(self.waiting.code)
        else:
            self.owned = partitions_of(self)
            self.waiting, self.next = None, self._beat

    def _beat(self) -> None:
        code = self.heartbeat()
        if code:
            self._begin_anew(code)

    def end(self) -> None:
        self.leave()


class New(Member):
    """A client of the consumer protocol."""

    def __init__(self, broker: Any, name: str, instance_id: str | None) -> None:
        super().__init__(broker, name, "orders", instance_id=instance_id)
        self.is_fenced = False

    def step(self) -> None:
        code = self.acknowledge() if self.epoch else self.beat()
        if code:
            self.partitions, self.epoch = set(), 0
            self.is_fenced = code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)

    def connection_is_lost(self) -> None:
        """Nothing waits."""

    def end(self) -> None:
        self.leave(-1)


class Migrations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = new_broker()
        self.clients: list[Any] = []
        self.made = 0

    @property
    def group(self) -> Any:
        return self.broker.broker.groups.groups.get(BILLING)

    @property
    def members(self) -> Any:
        return self.group.members if self.group is not None else {}

    def client(self, number: int) -> Any:
        return self.clients[number % len(self.clients)]

    @rule(kind=st.sampled_from([Old, New]), instance=st.sampled_from([None, None, *STATIC]))
    def join(self, kind: Any, instance: str | None) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.made += 1
            client = kind(self.broker, f"client-{self.made}", instance)
            self.clients.append(client)
            self.step(client)

    def step(self, client: Any) -> None:
        client.step()
        if client.is_fenced:
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 20))
    def is_heard_of(self, number: int) -> None:
        self.step(self.client(number))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        client = self.client(number)
        self.clients.remove(client)
        client.end()

    @precondition(lambda self: any(isinstance(one, New) and one.sent["instance_id"] for one in self.clients))
    @rule(number=st.integers(0, 20))
    def leave_for_a_while(self, number: int) -> None:
        static = [one for one in self.clients if isinstance(one, New) and one.sent["instance_id"]]
        client = static[number % len(static)]
        self.clients.remove(client)
        client.leave(-2)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 20))
    def is_never_heard_of_again(self, number: int) -> None:
        self.clients.remove(self.client(number))

    @rule(steps=st.integers(1, 14), silent=st.integers(0, 20))
    def time_passes(self, steps: int, silent: int) -> None:
        """One of the clients says nothing meanwhile."""
        one = self.client(silent) if self.clients else None
        self.pass_time(steps, one)

    def pass_time(self, steps: int, silent: Any = None) -> None:
        for _ in range(steps):
            self.broker.tick(STEP_MS)
            for client in list(self.clients):
                if client is not silent:
                    self.step(client)

    @rule(how=st.sampled_from(["kill", "restart"]))
    def the_broker_restarts(self, how: str) -> None:
        before = set(self.members) if isinstance(self.group, ConsumerGroup) else None
        getattr(self.broker, how)()
        self.broker.tick(1)
        for client in self.clients:
            client.connection_is_lost()
        if before:  # of a classic group, members that are joining are not in the log
            assert isinstance(self.group, ConsumerGroup)
            assert set(self.members) == before

    @rule()
    def all_are_heard_of(self) -> None:
        self.pass_time(SETTLED_AFTER)
        if not self.clients:
            assert not self.members
            return
        assert isinstance(self.group, ConsumerGroup if self.new else ClassicGroup)
        assert {client.member_id for client in self.clients} == self.members.keys()
        owned = [place for client in self.clients for place in owned_by(client)]
        assert sorted(owned) == sorted(all_of("orders", *range(PARTITIONS)))

    @property
    def new(self) -> list[New]:
        return [client for client in self.clients if isinstance(client, New)]

    @invariant()
    def no_partition_is_read_by_two_members(self) -> None:
        read = [place for client in self.clients if client.member_id in self.members for place in owned_by(client)]
        assert len(read) == len(set(read)), [(client.member_id, owned_by(client)) for client in self.clients]

    @invariant()
    def only_members_have_deadlines(self) -> None:
        timers, group = self.broker.broker.groups.timers, self.group
        for timer in timers._deadlines:
            if timer.kind in (JOIN, SYNC) and isinstance(group, ClassicGroup):
                assert timer.member_id == "", timer
            elif timer.kind == SESSION and isinstance(group, ClassicGroup):
                assert timer.member_id in group.members or timer.member_id in group.pending, timer
            elif timer.kind in (SESSION, REBALANCE, JOIN, SYNC) and timer.member_id in self.members:
                assert isinstance(group, ConsumerGroup)
            elif timer.kind != SESSION:  # of a member that had an id, and has not joined
                assert timer.member_id == "", timer

    @invariant()
    def members_that_are_gone_hold_nothing(self) -> None:
        if not self.members:
            assert self.broker.broker.groups._table._consumer_ports.held.bytes == 0


def owned_by(client: Any) -> set[tuple[str, int]]:
    return set(client.partitions if isinstance(client, New) else client.owned)


TestMigrations = Migrations.TestCase
TestMigrations.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
