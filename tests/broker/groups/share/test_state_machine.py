"""Members of a share group do what they like, in any order: join, beat, lose responses, leave, fall silent, change what
they subscribe to; topics come, grow and go; the broker restarts. Whatever the order:

    what the log says is what the group is, whatever the order of its last records
    the draft of a decision is what its replay makes of the group
    what a member has, the group has a state of; each partition gets its state once
    a group whose target is not older than its epoch has a member for each partition that is subscribed to, and its
    members have equal shares of them
    when all members are heard of, each has its target, and then nothing is written

`make crash` tries more orders (EXAMPLES=…).
"""

import os
import random
from typing import Any

from broker.groups.share.lone_share_group import LoneShareGroup, Worker
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.broker.configs.share import ShareSettings
from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.consumer.state import Partition
from tailrace.broker.groups.share.state import SharePhase
from tailrace.protocol.errors import ErrorCode

EXAMPLES = int(os.environ.get("EXAMPLES", "300"))
NAMES = ("a", "b", "c")
INTERVAL_MS = 1_000
SIZE_MAX = 7

subscriptions: Any = st.lists(st.sampled_from(NAMES), unique=True, min_size=1)
numbers = st.integers(0, 20)


class ShareGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = ShareSettings(assignment_interval_ms=INTERVAL_MS, size_max=SIZE_MAX)
        self.lone = LoneShareGroup({"a": 3, "b": 2}, limits)
        self.workers: list[Worker] = []
        self.made = 0

    def worker(self, number: int) -> Worker:
        return self.workers[number % len(self.workers)]

    # Members

    @rule(names=subscriptions)
    def join(self, names: list[str]) -> None:
        self.made += 1
        worker = Worker(f"m{self.made}", names)
        if len(self.lone.state.members) >= SIZE_MAX:
            assert self.refusal_of(worker) is ErrorCode.GROUP_MAX_SIZE_REACHED
        else:
            self.lone.beat(worker)
            self.workers.append(worker)

    def refusal_of(self, worker: Worker, **changed: Any) -> ErrorCode:
        try:
            self.lone.beat(worker, **changed)
        except Refused as error:
            return error.code
        return ErrorCode.NONE

    @precondition(lambda self: self.workers)
    @rule(number=numbers, is_lost=st.booleans())
    def beat(self, number: int, is_lost: bool) -> None:
        self.try_to_beat(self.worker(number), is_lost=is_lost)

    @precondition(lambda self: self.workers)
    @rule(number=numbers, names=st.lists(st.sampled_from(NAMES), unique=True))
    def subscribe(self, number: int, names: list[str]) -> None:
        worker = self.worker(number)
        worker.names = names
        self.try_to_beat(worker, names=names)
        if worker in self.workers:
            known = {facts.topic_id: name for name, facts in self.lone.topics.facts.items()}
            assert {known[topic_id] for topic_id, _ in worker.partitions if topic_id in known} <= set(names)

    @precondition(lambda self: self.workers)
    @rule(number=numbers)
    def join_again(self, number: int) -> None:
        worker = self.worker(number)
        if worker.names:
            worker.epoch = 0
            self.try_to_beat(worker)

    def try_to_beat(self, worker: Worker, **changed: Any) -> None:
        """A worker that has not heard of two epochs is fenced, and gives up."""
        if (code := self.refusal_of(worker, **changed)) is not ErrorCode.NONE:
            assert code is ErrorCode.FENCED_MEMBER_EPOCH
            self.workers.remove(worker)

    # Ends

    @precondition(lambda self: self.workers)
    @rule(number=numbers)
    def leave(self, number: int) -> None:
        worker = self.worker(number)
        self.workers.remove(worker)
        self.lone.leave(worker)

    @precondition(lambda self: self.lone.state.members)
    @rule(number=numbers)
    def fall_silent(self, number: int) -> None:
        members = sorted(self.lone.state.members)
        member_id = members[number % len(members)]
        self.lone.time_out(member_id)
        self.workers = [worker for worker in self.workers if worker.member_id != member_id]

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
        here = {worker.member_id for worker in self.workers}
        for member_id in self.lone.state.members.keys() - here:
            self.lone.time_out(member_id)
        self.lone.now_ms += INTERVAL_MS
        self.lone.refresh()
        for worker in list(self.workers):
            self.try_to_beat(worker)
        for member_id in self.lone.state.members.keys() - {worker.member_id for worker in self.workers}:
            self.lone.time_out(member_id)
            return  # it was fenced: the others have to hear of it
        state = self.lone.state
        for worker in self.workers:
            assert worker.partitions == state.members[worker.member_id].target
        before = len(self.lone.log)
        for worker in self.workers:
            assert self.lone.beat(worker).assignment is None
        assert len(self.lone.log) == before, "where nothing changes, nothing is written"

    # Always

    @property
    def wanted(self) -> dict[Partition, int]:
        """The partitions that are subscribed to, and how many members that is."""
        state = self.lone.state
        return {
            (facts.topic_id, index): state.subscribers[name]
            for name, facts in self.lone.topics.facts.items()
            if name in state.subscribers
            for index in range(facts.partition_count)
        }

    @invariant()
    def every_partition_has_members_and_the_shares_are_equal(self) -> None:
        state = self.lone.state
        if not state.members or state.epoch > state.assignment_epoch:
            return
        counts: dict[Partition, int] = {}
        for member in state.members.values():
            for partition in member.target:
                counts[partition] = counts.get(partition, 0) + 1
        wanted = self.wanted
        assert counts.keys() == wanted.keys()
        assert all(counts[partition] <= wanted[partition] for partition in counts)
        if len({tuple(member.details.subscribed_names) for member in state.members.values()}) == 1:
            loads = [len(member.target) for member in state.members.values()]
            assert max(loads) - min(loads) <= 1
            assert not wanted or min(loads) >= 1, "no member is idle"

    @invariant()
    def what_is_assigned_has_a_state(self) -> None:
        state = self.lone.state
        known = {(topic_id, index) for topic_id, topic in state.initialized.items() for index in topic.partitions}
        existing = {facts.topic_id for facts in self.lone.topics.facts.values()}
        assert {topic_id for topic_id, _ in known} <= existing, "of a deleted topic nothing is left"
        assert known <= self.lone.states
        for member in state.members.values():
            assert {partition for partition in member.target if partition[0] in existing} <= known
        assert known >= self.wanted.keys()

    @invariant()
    def the_log_says_what_the_group_is(self) -> None:
        assert vars(self.lone.replayed()) == vars(self.lone.state)

    @invariant()
    def nobody_is_ahead_of_the_group(self) -> None:
        state = self.lone.state
        assert state.phase is (SharePhase.STABLE if state.members else SharePhase.EMPTY)
        for member in state.members.values():
            assert member.current.epoch <= state.assignment_epoch <= state.epoch


TestShareGroups = ShareGroups.TestCase
TestShareGroups.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
