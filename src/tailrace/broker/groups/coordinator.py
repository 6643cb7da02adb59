"""All groups of a broker: decide, append, replay, and answer when it is flushed.

A request is decided by its group (`classic.py`) or here, for offsets. What it changes becomes records; they are
appended to the log of groups (`log.py`) and replayed at once, by the same function that replays the log at the start.
An answer leaves when all that it may rest on is on disk (`when_safe`).

Until the log is read, whoever asks is told to come again (`check_loaded`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.errors import Refused
from tailrace.broker.groups import records
from tailrace.broker.groups.classic import ClassicGroup, GroupSettings, Ports, State
from tailrace.broker.groups.log import GroupLog, Pause
from tailrace.broker.groups.offsets import CommittedOffsets
from tailrace.broker.groups.records import GroupMetadataValue, OffsetCommitValue, OffsetRecord
from tailrace.broker.groups.saving import NotSaved
from tailrace.broker.groups.subscription import CONSUMER, subscribed_topics
from tailrace.broker.groups.timers import Timer, Timers
from tailrace.broker.requests import Call
from tailrace.broker.topics import Topic
from tailrace.broker.waiting import Answer, Later
from tailrace.protocol.errors import ErrorCode
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger(__name__)

REPLAYED_AT_ONCE = 500  # records at the start, 20 µs each
GROUPS_MAX = 100_000
FORGET = "forget"  # a group without members and offsets, after
FORGET_MS = 600_000

Commit = tuple[str, int, OffsetCommitValue]
"""A topic, a partition, and what is committed."""


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets()
        self.timers = Timers()
        self.log = GroupLog(broker)
        self._broker = broker
        self._now_ms = 0
        self._is_loaded = False
        self._failure: Exception | None = None
        number = broker.configs.number
        self.session_timeouts_ms = range(
            number("group.min.session.timeout.ms"), number("group.max.session.timeout.ms") + 1
        )
        self._settings = GroupSettings(number("group.initial.rebalance.delay.ms"), number("group.max.size"))
        self._ports = Ports(self.timers, self._save, lambda: broker.random_bytes(16).hex())

    # The clock, and the start

    def tell_time(self, now_ms: int, steady_ms: int) -> None:
        """`steady_ms` is of a clock that never jumps, and stands while the broker is held up."""
        self._now_ms = now_ms
        self.timers.now = max(self.timers.now, steady_ms)

    def advance(self) -> None:
        """Afterwards whatever is due by now has happened."""
        for group_id, kind, member_id in self.timers.due():
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
        if not any(True for _ in self.log.logs):
            self._is_loaded = True
        else:
            self.log.read(self._replay_some, self._cannot_load)

    def _cannot_load(self, error: Exception) -> None:
        logger.error("the log of groups cannot be read, so there are no groups until it is repaired: %s", error)
        self._failure = error

    def _replay_some(self, last: Sequence[Record]) -> None:
        try:
            for record in last[:REPLAYED_AT_ONCE]:
                self.replay(records.decode(record))
        except records.UnreadableRecord as error:
            self._cannot_load(error)
            return
        rest = last[REPLAYED_AT_ONCE:]
        if rest:
            self._broker.start_job(Pause(), lambda: self._replay_some(rest))
        else:
            self._loaded()

    def _loaded(self) -> None:
        self._is_loaded = True
        for group in self.groups.values():
            group.resume()
            self._forget_later(group)
        try:
            self._remove_offsets_where(self._is_gone)
        except NotSaved:
            logger.warning("offsets of topics that are gone stay until the next start")

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

    def _write(self, group_id: str, made: Sequence[Record]) -> None:
        """Raises NotSaved."""
        self.log.append(group_id, made, self._now_ms)
        for record in made:
            self.replay(records.decode(record))

    def _save(self, group_id: str, value: GroupMetadataValue) -> None:
        value.current_state_timestamp = self._now_ms
        self._write(group_id, [records.encode_group(group_id, value, self._now_ms)])

    def when_safe(self, answer: Answer | Later[Answer], *group_ids: str) -> Answer | Later[Answer]:
        return self.log.when_safe(answer, group_ids)

    # Groups

    def find(self, group_id: str) -> ClassicGroup:
        """Raises Refused: who asks about a group that is not there is no member of it."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def find_or_make(self, group_id: str) -> ClassicGroup:
        if group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"there are {GROUPS_MAX} groups already")
        group = self._group_of(group_id)
        self._forget_later(group)
        return group

    def _forget_later(self, group: ClassicGroup) -> None:
        """A group that nobody is in, and that has come nowhere, is not kept for ever."""
        if group.state is State.EMPTY and not self.offsets.has(group.group_id):
            self.timers.set(Timer(group.group_id, FORGET), FORGET_MS)

    def _forget(self, group: ClassicGroup) -> None:
        if group.state is State.EMPTY and not group.pending and not self.offsets.has(group.group_id):
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
        made = [
            records.encode_offset(group_id, topic, partition, None, self._now_ms)
            for topic, partitions in self.offsets.of_group(group_id).items()
            for partition in partitions
        ]
        if made or group.is_saved:
            self._write(group_id, [*made, records.encode_group(group_id, None, self._now_ms)])
        self.groups.pop(group_id, None)
        group.die()

    # Offsets

    def commit(self, group_id: str, commits: Iterable[Commit]) -> None:
        """Afterwards they are the group's offsets. Raises NotSaved."""
        made = [
            records.encode_offset(group_id, topic, partition, value, self._now_ms)
            for topic, partition, value in commits
        ]
        if made:
            self._write(group_id, made)

    def group_for_commit(self, group_id: str, generation: int) -> ClassicGroup:
        """Whoever is no member may commit to a group that is not there yet. Raises Refused."""
        if group_id not in self.groups and generation >= 0:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}")
        return self.find_or_make(group_id)

    def remove_offsets(self, group_id: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Raises NotSaved."""
        made = [
            records.encode_offset(group_id, topic, partition, None, self._now_ms)
            for topic, partition in wanted
            if self.offsets.get(group_id, topic, partition) is not None
        ]
        if made:
            self._write(group_id, made)
            self._forget_later(self.groups[group_id])

    def is_reading(self, group: ClassicGroup, topic: str) -> bool:
        """Whether a member has subscribed to the topic; in doubt, it has."""
        if group.protocol_type != CONSUMER or group.protocol is None:
            return bool(group.members)
        subscriptions = (subscribed_topics(member.metadata(group.protocol)) for member in group.members.values())
        return any(topics is None or topic in topics for topics in subscriptions)

    # Topics that are deleted

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        """Offsets live as long as what they point into."""
        names = {topic.name for topic in topics}
        if self._is_loaded:  # if not, it is seen to once all is read
            try:
                self._remove_offsets_where(lambda topic, _: topic in names)
            except NotSaved:
                logger.warning("offsets of the deleted topics stay until the next start")

    def _remove_offsets_where(self, is_gone: Callable[[str, OffsetCommitValue], bool]) -> None:
        for group_id, gone in [
            (group_id, gone) for group_id, topics in self.offsets.groups() if (gone := list(_places(topics, is_gone)))
        ]:
            self.remove_offsets(group_id, gone)

    def _is_gone(self, topic_name: str, value: OffsetCommitValue) -> bool:
        topic = self._broker.topic(topic_name)
        return topic is None or (any(value.topic_id) and value.topic_id != topic.topic_id)


def _places(
    topics: dict[str, dict[int, OffsetCommitValue]], is_wanted: Callable[[str, OffsetCommitValue], bool]
) -> Iterator[tuple[str, int]]:
    for topic, partitions in topics.items():
        for partition, value in partitions.items():
            if is_wanted(topic, value):
                yield topic, partition
