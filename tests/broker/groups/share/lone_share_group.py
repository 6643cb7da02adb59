"""A share group without a broker: its topics, its log and its clock are the test's.

lone = LoneShareGroup({"t": 4})
a = lone.join("a", "t")
lone.beat(a)
"""

from collections.abc import Callable, Iterable
from typing import Any

from broker.groups.consumer.lone_consumer_group import GROUP, Topics

from tailrace.broker.configs.share import ShareSettings
from tailrace.broker.groups.consumer.state import Partition
from tailrace.broker.groups.records import decode, encode
from tailrace.broker.groups.share import heartbeat
from tailrace.broker.groups.share.draft import ShareDraft
from tailrace.broker.groups.share.heartbeat import Outcome, ShareHeartbeat
from tailrace.broker.groups.share.state import ShareGroupState
from tailrace.broker.groups.share_records import ShareChange


class Worker:
    """A member, and what it believes."""

    def __init__(self, member_id: str, names: Iterable[str]) -> None:
        self.member_id = member_id
        self.names = list(names)
        self.epoch = 0
        self.partitions: frozenset[Partition] = frozenset()
        self.must_repeat_all = False  # a response was lost

    def request(self, **changed: Any) -> ShareHeartbeat:
        known = {"names": self.names} if self.epoch == 0 or self.must_repeat_all else {}
        return ShareHeartbeat(self.member_id, self.epoch, **{**known, **changed})

    def told(self, outcome: Outcome) -> None:
        self.epoch = outcome.epoch
        self.must_repeat_all = False
        if outcome.assignment is not None:
            self.partitions = frozenset(outcome.assignment)


class LoneShareGroup:
    def __init__(self, counts: dict[str, int], settings: ShareSettings | None = None) -> None:
        self.topics = Topics(counts)
        self.state = ShareGroupState(GROUP)
        self.settings = settings or ShareSettings(assignment_interval_ms=0)
        self.log: list[list[ShareChange]] = []
        self.states: set[Partition] = set()  # what was initialized
        self.now_ms = 1_000_000

    def decide(self, decide: Callable[[ShareDraft], Any]) -> Any:
        """Decides, appends and replays."""
        draft = ShareDraft(self.state, self.settings, self.topics, self.now_ms)
        outcome = decide(draft)
        if draft.changes:
            new = {(topic_id, index) for topic_id, indexes in draft.new_partitions.items() for index in indexes}
            assert not new & self.states, "each gets a state once"
            self.states |= new
            self.log.append(draft.changes)
            for change in draft.changes:
                self.state.replay(change)
        assert vars(self.state) == vars(draft.state), "the draft is what its changes make of the group"
        return outcome

    def beat(self, worker: Worker, *, is_lost: bool = False, **changed: Any) -> Outcome:
        """`is_lost`: the worker never sees the response."""
        outcome: Outcome = self.decide(lambda draft: heartbeat.beat(draft, worker.request(**changed)))
        if is_lost:
            worker.must_repeat_all = True
        else:
            worker.told(outcome)
        return outcome

    def join(self, member_id: str, *names: str) -> Worker:
        worker = Worker(member_id, names)
        self.beat(worker)
        return worker

    def leave(self, worker: Worker) -> Outcome:
        outcome: Outcome = self.decide(lambda draft: heartbeat.leave(draft, ShareHeartbeat(worker.member_id, -1)))
        return outcome

    def time_out(self, member_id: str) -> None:
        self.decide(lambda draft: heartbeat.remove(draft, member_id))

    def refresh(self) -> None:
        self.decide(heartbeat.refresh)

    def replayed(self, shuffle: Callable[[list[Any]], None] = lambda changes: None) -> ShareGroupState:
        """What a start makes of the log: of the last record of each key, in any order, through their bytes."""
        last = {}
        for change in (change for changes in self.log for change in changes):
            record = encode(change, self.now_ms)
            last[record.key] = record
        records = list(last.values())
        shuffle(records)
        state = ShareGroupState(GROUP)
        for record in records:
            state.replay(decode(record))  # type: ignore[arg-type]
        return state
