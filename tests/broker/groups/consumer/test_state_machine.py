"""Members of a consumer group do what they like, in any order: join, beat, lose responses, hold on to what they shall
give up, leave, fall silent, come back under another id, change what they subscribe to; topics come, grow and go; the
broker restarts. Whatever the order:

    no partition has two owners: neither by the broker, nor by what members believe that were not removed
    what the log says is what the group is, whatever the order of its last records
    the draft of a decision is what its replay makes of the group
    when all members are heard of, each has its target, and all that is subscribed to is assigned

`make crash` tries more orders (EXAMPLES=…).
"""

import os
import random
from typing import Any

from broker.groups.consumer.lone_consumer_group import Client, LoneConsumerGroup
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.consumer.draft import ConsumerSettings
from tailrace.broker.groups.consumer.state import GroupPhase, MemberState

EXAMPLES = int(os.environ.get("EXAMPLES", "300"))
NAMES = ("a", "b", "c")
PATTERNS = ("a|b", "[bc]", ".*")
INTERVAL_MS = 1_000

subscriptions: Any = st.one_of(
    st.fixed_dictionaries({"names": st.lists(st.sampled_from(NAMES), unique=True)}),
    st.fixed_dictionaries({"names": st.just([]), "pattern": st.sampled_from(PATTERNS)}),
)
numbers = st.integers(0, 20)


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lone = LoneConsumerGroup({"a": 3, "b": 2}, ConsumerSettings(assignment_interval_ms=INTERVAL_MS))
        self.clients: list[Client] = []
        self.made = 0

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # Members

    @rule(subscription=subscriptions, instance=st.sampled_from([None, None, "desk", "till"]))
    def join(self, subscription: dict[str, Any], instance: str | None) -> None:
        if len(self.clients) < 6:
            self.made += 1
            client = Client(f"m{self.made}", instance_id=instance, **subscription)
            self.try_to_beat(client)
            if client.epoch:
                self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(number=numbers, is_slow=st.booleans(), is_lost=st.booleans())
    def beat(self, number: int, is_slow: bool, is_lost: bool) -> None:
        self.try_to_beat(self.client(number), is_slow=is_slow, is_lost=is_lost)

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def give_up_what_was_revoked(self, number: int) -> None:
        self.client(number).revoke()

    @precondition(lambda self: self.clients)
    @rule(number=numbers, subscription=subscriptions)
    def subscribe(self, number: int, subscription: dict[str, Any]) -> None:
        client = self.client(number)
        sent = {"pattern": "", **subscription}
        client.names, client.sent["pattern"] = sent["names"], sent["pattern"]
        self.try_to_beat(client, **sent)

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def join_again(self, number: int) -> None:
        client = self.client(number)
        client.lose_everything()
        self.try_to_beat(client)

    def try_to_beat(self, client: Client, **changed: Any) -> None:
        try:
            self.lone.beat(client, **changed)
        except Refused:
            if client in self.clients:  # it gives up everything, and would join again
                self.clients.remove(client)

    # Ends

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def leave(self, number: int) -> None:
        client = self.client(number)
        self.clients.remove(client)
        try:
            self.lone.leave(client)
        except Refused:
            assert client.member_id not in self.lone.state.members

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def leave_for_a_while(self, number: int) -> None:
        client = self.client(number)
        if client.sent.get("instance_id") is not None and client.member_id in self.lone.state.members:
            self.clients.remove(client)
            self.lone.leave(client, -2)

    @precondition(lambda self: self.lone.state.members)
    @rule(number=numbers)
    def fall_silent(self, number: int) -> None:
        """A session is over, or a revocation has taken too long."""
        members = sorted(self.lone.state.members)
        member_id = members[number % len(members)]
        self.lone.time_out(member_id)
        self.clients = [client for client in self.clients if client.member_id != member_id]

    # The rest of the world

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def create_or_grow_a_topic(self, name: str, count: int) -> None:
        facts = self.lone.topics.facts
        if name not in facts:
            self.lone.topics.create(name, count)
        else:
            facts[name] = facts[name]._replace(partition_count=facts[name].partition_count + count)
        self.lone.refresh()

    @rule(name=st.sampled_from(NAMES))
    def delete_a_topic(self, name: str) -> None:
        self.lone.topics.facts.pop(name, None)
        self.lone.refresh()

    @rule(ms=st.sampled_from([1, INTERVAL_MS, 10 * INTERVAL_MS]))
    def wait(self, ms: int) -> None:
        self.lone.now_ms += ms
        self.lone.refresh()

    @rule(seed=st.integers(0, 1000))
    def restart(self, seed: int) -> None:
        self.lone.state = self.lone.replayed(random.Random(seed).shuffle)
        self.lone.refresh()

    @rule()
    def everybody_is_heard_of(self) -> None:
        """Static members that are away are not: their sessions end first."""
        here = {client.member_id for client in self.clients}
        for member_id in self.lone.state.members.keys() - here:
            self.lone.time_out(member_id)
        self.lone.now_ms += INTERVAL_MS
        self.lone.refresh()
        for _ in range(4):  # hear of it, give up, take over, and hear that
            for client in list(self.clients):
                client.revoke()
                self.lone.beat(client)
        state = self.lone.state
        assert state.phase in (GroupPhase.STABLE, GroupPhase.EMPTY)
        known = {facts.topic_id: name for name, facts in self.lone.topics.facts.items()}
        subscribed: set[Any] = set()
        for member in state.members.values():
            topics = state.topics_of(member.details)
            assert member.current.assigned.keys() == member.target
            assert {known[topic_id] for topic_id, _ in member.target} <= topics
            subscribed |= topics
        for client in self.clients:
            assert client.owned == state.members[client.member_id].target
        facts = [facts for name, facts in self.lone.topics.facts.items() if name in subscribed]
        assert state.owners.keys() == {(one.topic_id, index) for one in facts for index in range(one.partition_count)}
        assert self.lone.log == self.beat_all_again()

    def beat_all_again(self) -> list[Any]:
        """Returns the log. Where nothing changes, nothing is written."""
        before = list(self.lone.log)
        for client in self.clients:
            self.lone.beat(client)
        return before

    # Always

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        state = self.lone.state
        held = [
            partition
            for member in state.members.values()
            for partition in (*member.current.assigned, *member.current.pending)
        ]
        assert len(held) == len(set(held))
        assert state.owners == {
            partition: member.member_id
            for member in state.members.values()
            for partition in (*member.current.assigned, *member.current.pending)
        }
        read = [partition for client in self.clients for partition in client.owned]
        assert len(read) == len(set(read))

    @invariant()
    def the_log_says_what_the_group_is(self) -> None:
        assert vars(self.lone.replayed()) == vars(self.lone.state)

    @invariant()
    def nobody_waits_for_an_older_target(self) -> None:
        state = self.lone.state
        for member in state.members.values():
            assert member.current.epoch <= state.assignment_epoch <= max(state.epoch, state.assignment_epoch)
            assert bool(member.current.pending) == (member.current.state is MemberState.UNREVOKED)


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
