"""The group coordinator: all groups of a broker. Decides, appends, replays, and responds when that is flushed.

A request is decided by its group (`classic/group`), or here, for offsets. Its changes become records, which are
appended to the log of groups (`log`) and replayed at once, by the same function that replays the log at the start. A
response leaves when all that it may depend on is on disk (`when_safe`).

Until the log is read (`load`), requests are refused with COORDINATOR_LOAD_IN_PROGRESS (`begin`).
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import Answer, DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.groups import records
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.state import GroupSettings, HeldBytes, Ports, State
from tailrace.broker.groups.log import GroupLog
from tailrace.broker.groups.offsets import CommittedOffsets
from tailrace.broker.groups.records import Change, GroupMetadataValue, NotSaved, OffsetCommitValue, OffsetRecord
from tailrace.broker.groups.timers import Timer
from tailrace.log.layout.errors import without_frames
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.groups")

DUE_AT_ONCE = 100  # deadlines, before others have their turn: each may be a rebalance
GROUPS_MAX = 100_000
FORGET = "forget"  # a group without members and offsets, after
FORGET_MS = 600_000

OffsetCommit = tuple[str, int, OffsetCommitValue]
"""A topic, a partition, and what is committed."""


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets()
        self.timers = broker.timers
        self.log = GroupLog(broker)
        self._broker = broker
        self._now_ms = 0
        self.rebalances = 0  # that have shared out the work
        self._is_loaded = not any(self.log.logs)
        self._has_resumed = False
        self._failure: Exception | None = None
        number = broker.configs.number
        self.session_timeouts_ms = range(
            number("group.min.session.timeout.ms"), number("group.max.session.timeout.ms") + 1
        )
        self._settings = GroupSettings(number("group.initial.rebalance.delay.ms"), number("group.max.size"))
        self._ports = Ports(self.timers, HeldBytes(), self._save, lambda: broker.random_bytes(16).hex())

    # The clock, and the start

    def tell_time(self, now_ms: int, steady_ms: int) -> None:
        """`steady_ms` is of a clock that never jumps, and stands while the broker is held up."""
        self._now_ms = now_ms
        self.timers.now = max(self.timers.now, steady_ms)
        if self._is_loaded and not self._has_resumed:
            self._has_resumed = True
            IncrementalResponse(self._resume(), self._broker.start_job)

    def advance(self) -> None:
        """Afterwards whatever is due by now has happened."""
        for group_id, kind, member_id in islice(self.timers.due(), DUE_AT_ONCE):
            group = self.groups.get(group_id)
            if group is None:
                continue
            if kind == FORGET:
                self._forget(group)
            else:
                group.timed_out(kind, member_id)
                self._forget_later(group)

    def begin(self, call: Call) -> None:
        """To be called first by whoever handles a request. Raises Refused until the log is read."""
        self.tell_time(call.now_ms, call.steady_ms)
        if self._failure is not None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the log of groups cannot be read: {self._failure}")
        if not self._is_loaded:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being read")

    def load(self) -> None:
        """Begins to read the log; `begin` lets requests in when that is done."""
        if not self._is_loaded:
            self.log.read(self._replay, self._cannot_load)

    def _cannot_load(self, error: Exception) -> None:
        logger.error("the log of groups cannot be read, so there are no groups until it is repaired: %s", error)
        self._failure = without_frames(error)

    def _replay(self, last: Iterable[Record]) -> None:
        IncrementalResponse(self._replay_all(last), self._broker.start_job)

    def _replay_all(self, last: Iterable[Record]) -> Generator[None, None, None]:
        try:
            for record in last:
                self.replay(records.decode(record))
                yield
        except Exception as error:  # noqa: BLE001 - whatever it is: half of the offsets are worse than none
            self._cannot_load(error)
        else:
            self._is_loaded = True

    def _resume(self) -> Generator[None, None, None]:
        """All is read, and the time is known: from here on deadlines count. Offsets of topics that were deleted while
        nobody looked go, too.
        """
        for group in list(self.groups.values()):
            group.resume()
            self._forget_later(group)
            yield
        yield from self._remove_offsets_where(self._is_gone)

    def refuse_waiting(self) -> None:
        """The broker is about to stop."""
        for group in self.groups.values():
            group.refuse_waiting()

    # What the log says

    def replay(self, record: OffsetRecord) -> None:
        """The only way in which groups and offsets change for good, while running and at the start."""
        match record:
            case records.OffsetCommitted(group, topic, partition, value):
                self._group_of(group)
                self.offsets.set(group, topic, partition, value)
            case records.OffsetRemoved(group, topic, partition):
                self.offsets.remove(group, topic, partition)
            case records.GroupSaved(group, value):
                self._group_of(group).replay(value)
            case records.GroupRemoved(group):
                self.groups.pop(group, None)

    def _group_of(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings, self._ports)
        return group

    def _write(self, group_id: str, changes: Sequence[Change]) -> None:
        """Afterwards the log has them, as one batch, and so has the state. Raises NotSaved."""
        self.log.append(group_id, [records.encode(change, self._now_ms) for change in changes], self._now_ms)
        for change in changes:
            self.replay(change)

    def _save(self, group_id: str, value: GroupMetadataValue) -> None:
        value.current_state_timestamp = self._now_ms
        group = self.groups[group_id]
        self._forget_later(group)  # perhaps its last member has just left
        is_shared_out = group.state is State.COMPLETING  # and not a static member that is back
        self._write(group_id, [records.GroupSaved(group_id, value)])
        self.rebalances += is_shared_out

    def when_safe(self, answer: Answer | DelayedResponse[Answer], *group_ids: str) -> Answer | DelayedResponse[Answer]:
        """The answer, once what it says of these groups is on disk."""
        return self.log.when_safe(answer, group_ids)

    def when_all_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        return self.log.when_safe(answer, None)

    # Groups

    def find(self, group_id: str) -> ClassicGroup:
        """Raises Refused: who asks about a group that is not there is no member of it."""
        if not group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def find_or_make(self, group_id: str) -> ClassicGroup:
        if group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there are {GROUPS_MAX} groups already")
        group = self._group_of(group_id)
        self._forget_later(group)
        return group

    def _forget_later(self, group: ClassicGroup) -> None:
        """A group that nobody is in, and that has come nowhere, is not kept for ever."""
        if group.state is State.EMPTY and not self.offsets.has(group.group_id):
            self.timers.set(Timer(group.group_id, FORGET), FORGET_MS)

    def _forget(self, group: ClassicGroup) -> None:
        if group.state is State.EMPTY and not self.offsets.has(group.group_id):
            try:
                self._remove(group)
            except NotSaved:
                self._forget_later(group)

    def delete(self, group_id: str) -> None:
        """Takes a group and its offsets away. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if group.state is not State.EMPTY:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members")
        self._remove(group)

    def _remove(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        changes: list[Change] = [
            records.OffsetRemoved(group_id, topic, partition)
            for topic, partitions in self.offsets.of_group(group_id).items()
            for partition in partitions
        ]
        if changes or group.is_saved:
            self._write(group_id, [*changes, records.GroupRemoved(group_id)])
        self.groups.pop(group_id, None)

    # Offsets

    def commit(self, group_id: str, commits: Iterable[OffsetCommit]) -> None:
        """Afterwards they are the group's offsets. Raises NotSaved."""
        changes = [records.OffsetCommitted(group_id, topic, partition, value) for topic, partition, value in commits]
        if changes:
            self._write(group_id, changes)

    def group_for_commit(self, group_id: str, generation: int, not_found: ErrorCode) -> ClassicGroup:
        """Whoever is no member may commit to a group that is not there yet. Raises Refused."""
        if group_id not in self.groups and generation >= 0:
            raise Refused(not_found, f"there is no group {group_id!r}")
        return self.find_or_make(group_id)

    def remove_offsets(self, group_id: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Raises NotSaved."""
        changes = [
            records.OffsetRemoved(group_id, topic, partition)
            for topic, partition in wanted
            if self.offsets.get(group_id, topic, partition) is not None
        ]
        if changes:
            self._write(group_id, changes)
            self._forget_later(self.groups[group_id])

    # Topics that are deleted

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        """Offsets live as long as what they point into."""
        # There may be a topic of the same name already, so it goes by the id, where there is one.
        gone = {(topic.name, topic_id) for topic in topics for topic_id in (topic.topic_id, ZERO_UUID)}
        if self._has_resumed:  # if not, it is seen to once all is read
            work = self._remove_offsets_where(lambda topic, value: (topic, value.topic_id) in gone)
            IncrementalResponse(work, self._broker.start_job)

    def _remove_offsets_where(self, is_gone: Callable[[str, OffsetCommitValue], bool]) -> Generator[None, None, None]:
        for group_id, topics in list(self.offsets.groups()):
            if gone := list(_places(topics, is_gone)):
                try:
                    self.remove_offsets(group_id, gone)
                except NotSaved:
                    logger.warning("offsets of topics that are gone stay until the next start")
                    return
            yield

    def _is_gone(self, topic_name: str, value: OffsetCommitValue) -> bool:
        topic = self._broker.topic(topic_name)
        return topic is None or value.topic_id not in (topic.topic_id, ZERO_UUID)


def _places(
    topics: dict[str, dict[int, OffsetCommitValue]], is_wanted: Callable[[str, OffsetCommitValue], bool]
) -> Iterator[tuple[str, int]]:
    for topic, partitions in topics.items():
        for partition, value in partitions.items():
            if is_wanted(topic, value):
                yield topic, partition
