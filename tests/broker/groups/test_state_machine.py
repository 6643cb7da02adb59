"""Members of a group do what they like, in any order: join, share out, fall silent, come back under an old name, lose
their connections; time passes, the disk is full for a while, and the broker restarts or is killed. Whatever the order:

    a partition has one owner in a generation, and generations only grow
    states change as the table of transitions says
    who works and is heard of stays a member until it is told otherwise
    a committed offset is the one that was committed last
    what the log says is what the group is
    members that behave get to work, and where nobody asks for anything any more, nothing is left that waits

The broker is the real one, on a disk in memory, and so are the requests. `make crash` tries more orders (EXAMPLES=…).
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from group_requests import BILLING, Asked, Consumer, broker_for_groups, commit, commit_request, offsets
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logs import DATA, memory_files

from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.snapshots import saved_group
from tailrace.broker.groups.classic.state import TRANSITIONS, State
from tailrace.broker.groups.coordinator import FORGET_MS
from tailrace.broker.groups.records import GroupMetadataValue, GroupRemoved, GroupSaved, decode
from tailrace.broker.metadata.internal_topics import AppendedBatch
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tailrace.records.record import Record
from tailrace.testing.faulty_files import FaultyFiles

EXAMPLES = int(os.environ.get("EXAMPLES", "3000"))

PARTITIONS = 3
PLACES = ("a", "b", "till", "desk")  # where a process runs; the last two have static members
STATIC = ("till", "desk")
SESSIONS_MS = {"a": 10_000, "b": 25_000, "till": 10_000, "desk": 100_000}
SESSION_MS, REBALANCE_MS = 10_000, 60_000
SILENT_MS = 10 * (max(SESSIONS_MS.values()) + REBALANCE_MS)  # long enough for all that is waited for

places = st.sampled_from(PLACES)


class Process(Consumer):
    """A client, and how long the broker owes it to keep it: from when it learned of its work until it is told off."""

    def __init__(self, broker: Any, place: str, learned: Callable[["Process"], None]) -> None:
        super().__init__(
            broker,
            place,
            instance_id=place if place in STATIC else None,
            session_ms=SESSIONS_MS[place],
            rebalance_ms=REBALANCE_MS,
        )
        self.learned = learned  # to be called when it has learned of its work
        self.asked: list[Asked] = []
        self.safe_until = 0
        self.is_out = False  # it was told that it is no member
        self.must_join = True
        self.needs_sync = False

    def ask(self, asked: Asked) -> Asked:
        self.asked.append(asked)
        return asked

    @property
    def is_waiting(self) -> bool:
        return any(one.answer is None for one in self.asked)

    def _joined(self, answer: Any) -> None:
        super()._joined(answer)
        self.safe_until = 0
        if not answer.error_code:
            self.needs_sync, self.must_join = True, False
        else:
            self.told(answer.error_code)

    def _synced(self, answer: Any) -> None:
        super()._synced(answer)
        if not answer.error_code:
            self.needs_sync = False
            self.safe_until = self.broker.now_ms + self.session_ms
            self.learned(self)
        else:
            self.told(answer.error_code)

    def told(self, code: int) -> None:
        """By a request of a member."""
        if code:
            self.safe_until = 0
        elif self.safe_until:
            self.safe_until = self.broker.now_ms + self.session_ms
        self.is_out = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        self.must_join = self.must_join or code != 0

    def shares(self) -> dict[str, bytes]:
        """What it says when it leads."""
        if not self.is_leader or not self.joined.members:
            return {}
        members = [one.member_id for one in self.joined.members]
        work: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            work.setdefault(members[(partition + self.generation) % len(members)], []).append(partition)
        return {member_id: bytes(partitions) for member_id, partitions in work.items()}


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = FaultyFiles(memory_files())
        self.is_opening = False
        self.is_disk_full = False
        self.processes: dict[str, Process] = {}
        self.zombies: list[Process] = []
        self.offsets: dict[int, int] = {}
        self.owners: dict[tuple[int, int, int], str] = {}  # by life of the group, generation and partition
        self.life = 0
        self.saved: GroupMetadataValue | None = None  # what the log says
        self.is_behind = False  # the log, as the disk was full
        self.generation = 0
        self._watch_states()
        logging.disable(logging.ERROR)  # the disk is full so often

    def _watch_states(self) -> None:
        def watched(group: ClassicGroup, name: str, value: Any) -> None:
            if name == "state" and hasattr(group, "state") and not self.is_opening:
                assert value == group.state or value in TRANSITIONS[group.state], f"{group.state} to {value}"
            object.__setattr__(group, name, value)

        ClassicGroup.__setattr__ = watched  # type: ignore[method-assign, assignment]

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size_max=st.sampled_from([3, 1_000]))
    def start(self, delay_ms: int, size_max: int) -> None:
        configs = {"group.initial.rebalance.delay.ms": str(delay_ms), "group.max.size": str(size_max)}
        self.broker = broker_for_groups(DATA, configs, files=self.files)
        self.size_max = size_max
        self.broker.create_topic(partitions=PARTITIONS)
        commit(self.broker, 0, group="another")  # so that the log is there, also when the disk is full
        self._watch_log()
        for place in PLACES:
            self.processes[place] = Process(self.broker, place, self.one_owner)

    def _watch_log(self) -> None:
        log = self.broker.broker.groups.log
        append = log.append

        def watched(group_id: str, records: Iterable[Record], now_ms: int, **producer: int) -> AppendedBatch:
            appended = append(group_id, records, now_ms, **producer)
            for record in records:
                match decode(record):
                    case GroupSaved(group, value) if group == BILLING:
                        assert self.saved is None or self.saved.generation <= value.generation
                        self.saved = value
                    case GroupRemoved(group) if group == BILLING:
                        self.saved = None
                        self.life += 1
                        self.generation = 0
            return appended

        log.append = watched  # type: ignore[method-assign]

    def teardown(self) -> None:
        try:
            if self.processes:
                self._ends_in_peace()
        finally:
            logging.disable(logging.NOTSET)
            del ClassicGroup.__setattr__

    @property
    def group(self) -> ClassicGroup | None:
        group = self.broker.broker.groups.groups.get(BILLING)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # Members

    @rule(place=places, version=st.sampled_from([0, 3, 4, 9]), topics=st.sampled_from([("orders",), ("orders", "x")]))
    def join(self, place: str, version: int, topics: tuple[str, ...]) -> None:
        process = self.processes[place]
        process.topics = topics
        process.ask(process.join(9 if process.instance_id else version))

    @rule(place=places)
    def sync(self, place: str) -> None:
        self._sync(self.processes[place])

    def _sync(self, process: Process) -> None:
        process.ask(process.sync(process.shares()))

    @rule(place=places)
    def heartbeat(self, place: str) -> None:
        process = self.processes[place]
        process.told(process.heartbeat())

    @rule(place=places)
    def leave(self, place: str) -> None:
        process = self.processes[place]
        if process.leave() == 0:
            process.safe_until = 0

    @rule(place=st.sampled_from(STATIC))
    def put_out(self, place: str) -> None:
        """By an operator."""
        gone = MemberIdentity(member_id="", group_instance_id=place)
        self.broker.ask(LeaveGroupRequest(group_id=BILLING, members=[gone]), 5)
        for process in (self.processes[place], *self.zombies):
            if process.name == place:
                process.safe_until = 0

    @rule(place=places, is_connection_lost=st.booleans())
    def replace(self, place: str, is_connection_lost: bool) -> None:
        """A process ends without a word, or hangs, and another one is started."""
        old = self.processes[place]
        if is_connection_lost:
            self._lose_connection(old)
        old.safe_until = 0
        self.zombies = [*self.zombies[-3:], old]
        self.processes[place] = Process(self.broker, place, self.one_owner)

    @rule(place=places)
    def lose_connection(self, place: str) -> None:
        self._lose_connection(self.processes[place])

    def _lose_connection(self, process: Process) -> None:
        for asked in process.asked:
            asked.abandon()
        process.asked.clear()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), what=st.sampled_from(["heartbeat", "leave", "join", "sync", "lose connection"]))
    def awake(self, data: Any, what: str) -> None:
        """One that was replaced goes on as if it was not."""
        process = data.draw(st.sampled_from(self.zombies))
        if not process.member_id:
            return  # without an id it would be the one that runs there now
        if what == "join":
            process.ask(process.join())
        elif what == "sync":
            self._sync(process)
        elif what == "lose connection":
            self._lose_connection(process)
        else:
            current = self.group._static.get(process.instance_id or "") if self.group is not None else None
            code = getattr(process, what)()
            assert (code == ErrorCode.FENCED_INSTANCE_ID) == (current not in (None, process.member_id))

    # Offsets

    @rule(place=places, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 9))
    def commit(self, place: str, partition: int, offset: int) -> None:
        process = self.processes[place]
        code = process.commit(offset, partition=partition)
        if code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_ID_NOT_FOUND):
            if process.generation >= 0:
                process.told(code)
            is_member = self.group is not None and process.member_id in self.group.members
            assert code or is_member or process.generation < 0
        if code == 0:
            self.offsets[partition] = offset

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 9))
    def commit_as_operator(self, partition: int, offset: int) -> None:
        is_empty = self.group is None or self.group.state is State.EMPTY
        code = commit(self.broker, offset, partition=partition)
        assert code in (0 if is_empty else ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code == 0:
            self.offsets[partition] = offset

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def forget_offset(self, partition: int) -> None:
        topic = OffsetDeleteRequestTopic(
            name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        answer = self.broker.ask(OffsetDeleteRequest(group_id=BILLING, topics=[topic]), 0)
        if answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0:
            self.offsets.pop(partition, None)

    @rule()
    def delete_group(self) -> None:
        is_empty = self.group is not None and self.group.state is State.EMPTY
        (result,) = self.broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results
        if result.error_code == 0:
            assert is_empty
            self.offsets.clear()
            self.generation = 0
            assert self.group is None

    # The world

    @rule(ms=st.sampled_from([1, 1_000, 3_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.broker.tick(ms)

    @rule(rounds=st.integers(1, 15))
    def keep_in_touch(self, rounds: int) -> None:
        """Time passes, and whoever waits for nothing is heard of."""
        for _ in range(rounds):
            self.broker.tick(5_000)
            for process in self.processes.values():
                if process.generation >= 0 and not process.is_waiting:
                    process.told(process.heartbeat())

    @precondition(lambda self: not self.is_disk_full)
    @rule()
    def fill_disk(self) -> None:
        self.files.fail("write_at", errno.ENOSPC, name=".log", forever=True)
        self.is_disk_full = self.is_behind = True

    @precondition(lambda self: self.is_disk_full)
    @rule()
    def make_room(self) -> None:
        self.files.heal()
        self.is_disk_full = False

    @rule()
    def restart(self) -> None:
        self._another(self.broker.restart)

    @rule()
    def kill(self) -> None:
        self._another(self.broker.kill)

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 9))
    def kill_amid_a_commit(self, partition: int, offset: int) -> None:
        """It was not answered: it may have happened or not."""
        self._make_room()
        self.broker.hold_jobs = True
        self.broker.begin(commit_request({("orders", partition): offset}), 9)
        self.broker.hold_jobs = False
        self._another(self.broker.kill)
        found = offsets(self.broker).get(("orders", partition))
        assert found in (self.offsets.get(partition), offset)
        if found is not None:
            self.offsets[partition] = found

    def _make_room(self) -> None:
        if self.is_disk_full:
            self.make_room()

    def _another(self, end: Callable[[], None]) -> None:
        """Another process on the same disk. Members lose their connections, and go on."""
        self._make_room()
        before = self._settled()
        for process in (*self.processes.values(), *self.zombies):
            process.asked.clear()
        self.is_opening = True
        end()
        self.is_opening = False
        self._watch_log()
        self.broker.tick(0)
        if before is not None:
            assert self._settled() == before
        self.generation = self.group.generation if self.group is not None else 0
        for process in self.processes.values():
            if process.safe_until > self.broker.now_ms:
                process.safe_until = self.broker.now_ms + process.session_ms

    def _settled(self) -> Any:
        """The group, where nothing is under way that a restart may forget."""
        group = self.group
        if group is None or self.is_behind or group.state not in (State.STABLE, State.EMPTY) or not group.is_saved:
            return None
        return comparable(saved_group(group)), group.state

    # Members that behave

    @rule(leaver=st.none() | places)
    def gather(self, leaver: str | None) -> None:
        """Everyone joins a rebalance, and then it is up to the leader to share out the work."""
        self.cooperate()
        assert self.group is not None
        if leaver is not None:
            self.leave(leaver)
        else:
            leader = next((one for one in self.processes.values() if one.member_id == self.group.leader), None)
            if leader is not None:
                leader.ask(leader.join())
        for process in self.processes.values():
            if not process.is_waiting and process.member_id in self.group.members:
                process.ask(process.join())

    @rule(data=st.data())
    def ask_for_work(self, data: Any) -> None:
        """Some do, without their leader."""
        for process in data.draw(st.sets(st.sampled_from(list(self.processes.values())))):
            if not process.is_leader and process.needs_sync:
                self._sync(process)

    @rule()
    def cooperate(self) -> None:
        """Everyone does what a client does. After some time all are at work, as many as there may be."""
        self._make_room()
        wanted = min(len(self.processes), self.size_max)
        for _ in range(SILENT_MS // 1_000):
            for process in self.processes.values():
                self._behave(process)
            if self._working() >= wanted:
                break
            self.broker.tick(1_000)
        else:
            raise AssertionError(f"only {self._working()} of {wanted} are at work: {self._describe()}")
        assert self.group is not None
        work = [one for member in self.group.members.values() for one in member.assignment]
        assert sorted(work) == list(range(PARTITIONS))

    def _describe(self) -> object:
        group = self.group
        return (
            [(one.name, one.member_id, one.generation, one.is_waiting, one.is_out) for one in self.processes.values()],
            group and (group.state, group.generation, list(group.members), group.pending, group.leader),
        )

    def _behave(self, process: Process) -> None:
        if process.is_waiting:
            return
        if process.is_out:
            process.member_id, process.generation, process.is_out = "", -1, False
        if process.must_join:
            process.ask(process.enter())
        elif process.needs_sync:
            self._sync(process)
        else:
            process.told(process.heartbeat())

    def _working(self) -> int:
        group = self.group
        if group is None or group.state is not State.STABLE:
            return 0
        return sum(
            process.member_id in group.members
            and process.generation == group.generation
            and not process.needs_sync
            and not process.is_waiting
            for process in self.processes.values()
        )

    # What holds

    def one_owner(self, process: Process) -> None:
        """Of a partition, in a generation."""
        for partition in process.assignment or b"":
            owner = process.instance_id or process.member_id
            assert self.owners.setdefault((self.life, process.generation, partition), owner) == owner

    @invariant()
    def generations_only_grow(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def who_works_and_is_heard_of_stays_a_member(self) -> None:
        for process in self.processes.values():
            if process.safe_until > self.broker.now_ms:
                assert self.group is not None
                assert process.member_id in self.group.members, process.name

    @invariant()
    def an_offset_is_what_was_committed_last(self) -> None:
        if self.processes:
            found = self.broker.broker.groups.offsets.of_group(BILLING).get("orders", {})
            assert {partition: value.offset for partition, value in found.items()} == self.offsets

    @invariant()
    def the_log_says_what_the_group_is(self) -> None:
        if not self.processes or (settled := self._now_settled()) is None:
            return
        if settled == self.saved and not self.is_disk_full:
            self.is_behind = False  # it has caught up
        assert self.is_behind or settled == self.saved

    def _now_settled(self) -> GroupMetadataValue | None:
        group = self.group
        if group is None or group.state not in (State.STABLE, State.EMPTY) or not group.is_saved:
            return None
        value = saved_group(group)
        if self.saved is not None:
            value.current_state_timestamp = self.saved.current_state_timestamp
        return value

    @invariant()
    def nothing_is_kept_of_those_who_are_gone(self) -> None:
        group = self.group if self.processes else None
        if group is None:
            return
        assert set(group._static.values()) == {
            member.member_id for member in group.members.values() if member.instance_id is not None
        }
        assert group.leader is None if not group.members else group.leader in group.members
        for member in group.members.values():
            for protocol, _ in member.protocols:
                assert group._supporters[protocol] >= 1
        if group.state in (State.STABLE, State.EMPTY):
            assert not any(member.is_parked for member in group.members.values())

    def _ends_in_peace(self) -> None:
        """Nobody asks for anything any more: all who wait are answered, and all members are out in the end."""
        self._make_room()
        for _ in range(SILENT_MS // 5_000):
            self.broker.tick(5_000)
        for process in (*self.processes.values(), *self.zombies):
            assert not process.is_waiting, f"{process.name} waits for ever"
        if self.group is not None:
            assert (self.group.state, self.group.members, self.group.pending) == (State.EMPTY, {}, set())
        self.broker.tick(FORGET_MS)
        assert (self.group is None) == (not self.offsets)
        assert len(self.broker.broker.groups.timers) == 0
        self.broker.close()


def comparable(value: GroupMetadataValue) -> dict[str, Any]:
    return {name: getattr(value, name) for name in ("protocol_type", "generation", "protocol", "leader", "members")}


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


@pytest.mark.crash
class TestGroupsForLong(Groups.TestCase):  # type: ignore[misc, name-defined, valid-type]
    settings = settings(max_examples=EXAMPLES, stateful_step_count=80, deadline=None)
