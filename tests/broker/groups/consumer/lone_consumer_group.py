"""A consumer group without a broker: its topics, its log and its clock are the test's.

lone = LoneConsumerGroup({"t": 4})
a = lone.join("a", "t")
lone.beat(a)
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.broker.groups.consumer import heartbeat
from tailrace.broker.groups.consumer.draft import ConsumerSettings, Draft, TopicFacts
from tailrace.broker.groups.consumer.heartbeat import Heartbeat, Outcome
from tailrace.broker.groups.consumer.state import GroupState, Partition
from tailrace.broker.groups.consumer_records import ConsumerChange, PatternValue
from tailrace.broker.groups.records import decode, encode

GROUP = "g"


class Topics:
    """The topics that there are; a topic that is made again has another id."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.made = 0
        self.facts: dict[str, TopicFacts] = {}
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self.made += 1
        self.facts[name] = TopicFacts(self.made.to_bytes(16), count)

    def find(self, name: str) -> TopicFacts | None:
        return self.facts.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, facts in self.facts.items() if facts.topic_id == topic_id), None)

    def check(self, pattern: str) -> None:
        """All are good."""

    def resolve(self, pattern: str) -> PatternValue | None:
        matches = sorted(name for name in self.facts if re.fullmatch(pattern, name))
        return PatternValue(topics=matches, version=self.made)


class Client:
    """A member, and what it believes: `owned` is what it reads now, `assigned` what it was told to read. A slow one has
    yet to give up what it was told to; until then it does not say what it owns.
    """

    def __init__(self, member_id: str, names: Iterable[str] = (), **sent: Any) -> None:
        self.member_id = member_id
        self.names = list(names)
        self.sent = sent  # instance_id, pattern, assignor
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.assigned: frozenset[Partition] = frozenset()
        self.must_repeat_all = False  # a response was lost

    def request(self, **changed: Any) -> Heartbeat:
        """What it sends: all of it when it joins, else what it owns."""
        owned = self.owned if self.owned == self.assigned or self.must_repeat_all else None
        known = {"instance_id": self.sent.get("instance_id"), "owned": owned, **changed}
        if self.epoch == 0 or self.must_repeat_all:
            known = {"rebalance_timeout_ms": 300_000, "names": self.names, **self.sent, **known}
        return Heartbeat(self.member_id, self.epoch, **known)

    def told(self, outcome: Outcome, *, is_slow: bool = False) -> None:
        self.member_id, self.epoch = outcome.member_id, outcome.epoch
        self.must_repeat_all = False
        if outcome.assignment is not None:
            self.assigned = frozenset(outcome.assignment)
            if not is_slow:
                self.revoke()

    def revoke(self) -> None:
        self.owned = self.assigned

    def lose_everything(self) -> None:
        self.epoch = 0
        self.owned = self.assigned = frozenset()


class LoneConsumerGroup:
    def __init__(self, counts: dict[str, int], settings: ConsumerSettings | None = None) -> None:
        self.topics = Topics(counts)
        self.state = GroupState(GROUP)
        self.settings = settings or ConsumerSettings(assignment_interval_ms=0)
        self.log: list[list[ConsumerChange]] = []
        self.now_ms = 1_000_000

    def decide(self, decide: Callable[[Draft], Any]) -> Any:
        """Decides, appends and replays."""
        draft = Draft(self.state, self.settings, self.topics, self.now_ms)
        outcome = decide(draft)
        if draft.changes:
            self.log.append(draft.changes)
            for change in draft.changes:
                self.state.replay(change)
        assert vars(self.state) == vars(draft.state), "the draft is what its changes make of the group"
        return outcome

    def beat(self, client: Client, *, is_slow: bool = False, is_lost: bool = False, **changed: Any) -> Outcome:
        """`is_slow`: the client takes its time to give up partitions; `is_lost`: it never sees the response."""
        outcome: Outcome = self.decide(lambda draft: heartbeat.beat(draft, client.request(**changed)))
        if is_lost:
            client.must_repeat_all = True
        else:
            client.told(outcome, is_slow=is_slow)
        return outcome

    def join(self, member_id: str, *names: str, **sent: Any) -> Client:
        client = Client(member_id, names, **sent)
        self.beat(client)
        return client

    def leave(self, client: Client, epoch: int = -1) -> Outcome:
        client.epoch = epoch
        leaving = Heartbeat(client.member_id, epoch, client.sent.get("instance_id"))
        outcome: Outcome = self.decide(lambda draft: heartbeat.leave(draft, leaving))
        return outcome

    def time_out(self, member_id: str) -> None:
        self.decide(lambda draft: heartbeat.remove(draft, [member_id]))

    def refresh(self) -> None:
        self.decide(heartbeat.refresh)

    def replayed(self, shuffle: Callable[[list[Any]], None] = lambda changes: None) -> GroupState:
        """What a start makes of the log: of the last record of each key, in any order, through their bytes."""
        last = {}
        for change in (change for changes in self.log for change in changes):
            record = encode(change, self.now_ms)
            last[record.key] = record
        records = list(last.values())
        shuffle(records)
        state = GroupState(GROUP)
        for record in records:
            state.replay(decode(record))  # type: ignore[arg-type]
        return state
