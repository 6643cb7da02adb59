"""The group coordinator: all groups of a broker. Decides, appends, replays, and responds when that is flushed.

A group (`classic/group`, `consumer/group`, `share/group`) decides a request; this module decides requests for offsets.
The changes become records, which are appended to the log of groups (`log`) and replayed at once, by the same function
that replays the log at the start. A response is sent when all that it may depend on is on disk (`when_safe`). Offsets
that are committed in a transaction are replayed as pending, and count once its marker is appended and replayed
(`end_transaction`).

Until the log has been read (`load`), requests are refused with COORDINATOR_LOAD_IN_PROGRESS (`begin`).
"""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import Answer, DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import Topic
from tailrace.broker.groups import records
from tailrace.broker.groups.classic.state import State
from tailrace.broker.groups.consumer.draft import ConsumerSettings
from tailrace.broker.groups.consumer.heartbeat import Heartbeat, Outcome
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.log import GroupLog, UndecidedOffset
from tailrace.broker.groups.offsets import CommitObserver, CommittedOffsets
from tailrace.broker.groups.pending_offsets import GroupTransaction
from tailrace.broker.groups.records import Change, GroupMetadataValue, NotSaved, OffsetCommitValue, OffsetRecord
from tailrace.broker.groups.share.group import ShareGroup
from tailrace.broker.groups.share.heartbeat import Outcome as ShareOutcome
from tailrace.broker.groups.share.heartbeat import ShareHeartbeat
from tailrace.broker.groups.share.share_state import BrokerShareState, ShareState
from tailrace.broker.groups.table import ClassicProtocol, GroupTable, classic_protocol
from tailrace.broker.groups.timers import Timer
from tailrace.log.layout.errors import StorageError, without_frames
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.records.control import Marker
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.backlog.ledger import Actor
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.groups")

DUE_AT_ONCE = 100  # deadlines per turn of the loop: each may be a rebalance
FORGET = "forget"  # the deadline after which a group without members and offsets is removed
FORGET_MS = 600_000

OffsetCommit = tuple[str, int, OffsetCommitValue]
"""A topic, a partition, and the committed offset."""


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self.offsets = CommittedOffsets()
        self.timers = broker.timers
        self.log = GroupLog(broker)
        self._broker = broker
        self._now_ms = 0
        self.rebalances = 0  # rebalances that have ended with an assignment
        self._is_loaded = not any(self.log.logs)
        self._has_resumed = False
        self._failure: Exception | None = None
        self._observers: list[CommitObserver] = []  # until all is loaded
        number = broker.configs.number
        self.session_timeouts_ms = range(
            number("group.min.session.timeout.ms"), number("group.max.session.timeout.ms") + 1
        )
        self.share_state: ShareState = BrokerShareState(broker)
        self._table = GroupTable(
            broker,
            self.timers,
            write=self._write,
            save=self._save,
            now_ms=lambda: self._now_ms,
            share_state=lambda: self.share_state,
        )
        self.groups: Mapping[str, Group] = self._table.groups

    # The clock, and the start

    def tell_time(self, now_ms: int, steady_ms: int) -> None:
        """Sets the time. `steady_ms` is of a clock that never jumps, and stops while the broker is held up."""
        self._now_ms = now_ms
        self.timers.now = max(self.timers.now, steady_ms)
        if self._is_loaded and not self._has_resumed and not self._broker.queues_are_loading:
            self._has_resumed = True
            IncrementalResponse(self._resume(), self._broker.start_job)

    @property
    def now_ms(self) -> int:
        """The wall clock, as told last."""
        return self._now_ms

    def advance(self) -> None:
        """Handles all deadlines that are due."""
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
        """Checks that the groups can serve requests. Every handler calls it first. Raises Refused until the log is
        read.
        """
        self.tell_time(call.now_ms, call.steady_ms)
        if self._failure is not None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot read the log of groups: {self._failure}")
        if not self._is_loaded:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the log of groups is being read")

    @property
    def is_loading(self) -> bool:
        """Whether groups are still being read, so that their positions are not known."""
        return not self._is_loaded and self._failure is None

    @property
    def is_loaded(self) -> bool:
        """Whether all groups and their offsets are known."""
        return self._is_loaded

    @property
    def has_failed(self) -> bool:
        """Whether groups cannot be read, so that their positions stay unknown."""
        return self._failure is not None

    def observe_commits(self, observer: CommitObserver) -> None:
        """Calls `observer` after each change of a committed offset, from when all groups have been read."""
        (self.offsets.observers if self._is_loaded else self._observers).append(observer)

    def load(self) -> None:
        """Starts reading the log; `begin` raises no error once that is done."""
        if not self._is_loaded:
            self.log.read(self._replay, self._cannot_load)

    def _cannot_load(self, error: Exception) -> None:
        logger.error("cannot read the log of groups: %s. Consumer groups are unavailable until it is repaired", error)
        self._failure = without_frames(error)

    def _replay(self, undecided: Iterable[UndecidedOffset], last: Iterable[Record]) -> None:
        IncrementalResponse(self._replay_all(undecided, last), self._broker.start_job)

    def _replay_all(self, undecided: Iterable[UndecidedOffset], last: Iterable[Record]) -> Generator[None, None, None]:
        try:
            for transaction, record in undecided:  # first: commits behind them supersede them
                self._replay_pending(transaction, records.decode(record), record.offset)
                yield
            for record in last:
                self.replay(records.decode(record), record.offset)
                yield
        except Exception as error:  # noqa: BLE001 - any error: half of the offsets are worse than none
            self._cannot_load(error)
        else:
            self._is_loaded = True
            self.offsets.observers += self._observers

    def _resume(self) -> Generator[None, None, None]:
        """Ends the start: all is read, and deadlines count from here on. Removes offsets of topics that were deleted
        meanwhile.
        """
        for group in list(self.groups.values()):
            group.resume()
            self._forget_later(group)
            yield
        yield from self._remove_offsets_where(self._is_gone)

    def refuse_waiting(self) -> None:
        """Refuses all waiting requests, because the broker is about to stop."""
        for group in self.groups.values():
            group.refuse_waiting()

    # Replay

    def replay(self, record: OffsetRecord, record_offset: int) -> None:
        """Replays the record at this offset: with its two helpers, the only way in which groups and offsets change,
        while running and at the start.
        """
        match record:
            case records.OffsetCommitted(group, topic, partition, value):
                self._table.any_of(group)
                self.offsets.set(group, topic, partition, value, record_offset)
            case records.OffsetRemoved(group, topic, partition):
                self.offsets.remove(group, topic, partition)
            case records.OfAnotherKind():
                pass
            case _:
                self._table.replay(record)

    def _replay_pending(self, transaction: GroupTransaction, record: OffsetRecord, record_offset: int) -> None:
        """Replays a record of a transaction that is not decided: only offsets can be part of one."""
        if isinstance(record, records.OffsetCommitted):
            group, topic, partition, value = record
            self._table.any_of(group)
            self.offsets.set_pending(transaction, group, topic, partition, value, record_offset)

    def _replay_marker(self, transaction: GroupTransaction, marker: Marker) -> None:
        for group_id in self.offsets.end_transaction(transaction, marker):
            self._forget_later(self.groups[group_id])

    def _write(self, group_id: str, changes: Sequence[Change]) -> None:
        """Appends the changes to the log as one batch, and replays them. Raises NotSaved."""
        encoded = [records.encode(change, self._now_ms) for change in changes]
        appended = self.log.append(group_id, encoded, self._now_ms)
        for record_offset, change in enumerate(changes, appended.base_offset):
            self.replay(change, record_offset)

    def _save(self, group_id: str, value: GroupMetadataValue) -> None:
        value.current_state_timestamp = self._now_ms
        group = self.groups[group_id]
        self._forget_later(group)  # its last member may have just left
        is_shared_out = group.state is State.COMPLETING  # and not the return of a static member
        self._write(group_id, [records.GroupSaved(group_id, value)])
        self.rebalances += is_shared_out

    def when_safe(self, answer: Answer | DelayedResponse[Answer], *group_ids: str) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once the changes of these groups are on disk."""
        return self.log.when_safe(answer, group_ids)

    def when_share_safe(
        self, answer: Answer | DelayedResponse[Answer], *group_ids: str
    ) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once the changes of these groups, and of the states of partitions, are on disk."""
        return self.share_state.when_safe(self.log.when_safe(answer, group_ids))

    def when_all_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        return self.log.when_safe(answer, None)

    # Groups

    def find(self, group_id: str) -> ClassicProtocol:
        """Returns the group of a member of the classic protocol. Raises Refused: a client is not a member of a group
        that does not exist.
        """
        if not group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return classic_protocol(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def find_for_join(self, group_id: str, *, is_known: bool) -> ClassicProtocol:
        """Returns the group that a member of the classic protocol joins, or joins again. Raises Refused."""
        if is_known and not isinstance(self.groups.get(group_id), ShareGroup):
            return self.find(group_id)
        found = self._table.for_join(group_id)
        self._forget_later(self.groups[group_id])
        return found

    def find_or_make(self, group_id: str) -> Group:
        group = self._table.find_or_make(group_id)
        self._forget_later(group)
        return group

    def beat(self, group_id: str, beat: Heartbeat) -> Outcome:
        """A member of the consumer protocol joins, stays or leaves. Raises Refused."""
        outcome = self._table.beat(group_id, beat)
        if beat.is_leaving:
            self._forget_later(self.groups[group_id])
        return outcome

    def share_beat(self, group_id: str, beat: ShareHeartbeat) -> ShareOutcome:
        """A member of a share group joins, stays or leaves. Raises Refused."""
        outcome = self._table.share_beat(group_id, beat)
        if beat.is_leaving:
            self._forget_later(self.groups[group_id])
        return outcome

    def share_group(self, group_id: str) -> ShareGroup:
        """Returns a share group. Raises Refused if there is none of that name."""
        return self._table.share_group(group_id)

    def empty_share_group(self, group_id: str, *, make: bool = False) -> ShareGroup:
        """Returns a share group without members, perhaps one that it makes. Raises Refused."""
        group = self._table.share_group(group_id, make=make)
        if not group.is_empty:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members")
        self._forget_later(group)
        return group

    def settings_of(self, group_id: str) -> ConsumerSettings:
        """Returns the configs that apply to a consumer group."""
        return self._table.settings_of(group_id)

    def _forget_later(self, group: Group) -> None:
        """Sets the deadline for removing a group without members and offsets."""
        if self._is_forgettable(group):
            self.timers.set(Timer(group.group_id, FORGET), FORGET_MS)

    def _forget(self, group: Group) -> None:
        if self._is_forgettable(group):
            try:
                self._remove(group)
            except Refused:
                self._forget_later(group)

    def _is_forgettable(self, group: Group) -> bool:
        return group.is_empty and not group.outlives_members and not self.offsets.has(group.group_id)

    def delete(self, group_id: str, actor: "Actor") -> None:
        """Removes a group and its offsets. What it has not read is noted as lost. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if not group.is_empty:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members")
        offsets = (
            (topic, index, value.offset)
            for topic, partitions in self.offsets.of_group(group_id).items()
            for index, value in partitions.items()
        )
        self._broker.ledger.note_deleted_offsets(group_id, offsets, self._now_ms, actor)
        self._remove(group)

    def _remove(self, group: Group) -> None:
        group_id = group.group_id
        group.end()
        places = list(self.offsets.places_where(group_id, lambda *_: True))
        self._before_removal(group_id, places)
        removed = [records.OffsetRemoved(group_id, topic, partition) for topic, partition in places]
        if changes := [*removed, *group.tombstones()]:
            self._write(group_id, changes)
        self._table.groups.pop(group_id, None)

    # Offsets

    def commit(self, group_id: str, commits: Iterable[OffsetCommit]) -> None:
        """Commits the offsets. Raises NotSaved."""
        changes = [records.OffsetCommitted(group_id, topic, partition, value) for topic, partition, value in commits]
        if changes:
            self._write(group_id, changes)

    def commit_in_transaction(
        self, group_id: str, commits: Iterable[OffsetCommit], producer_id: int, producer_epoch: int
    ) -> None:
        """Commits the offsets in the producer's transaction: they are pending until `end_transaction`. Raises NotSaved,
        and Refused for a producer that is fenced.
        """
        changes = [records.OffsetCommitted(group_id, topic, partition, value) for topic, partition, value in commits]
        if not changes:
            return
        encoded = [records.encode(change, self._now_ms) for change in changes]
        appended = self.log.append(
            group_id, encoded, self._now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        transaction = GroupTransaction(appended.partition.index, producer_id)
        for record_offset, change in enumerate(changes, appended.base_offset):
            self._replay_pending(transaction, change, record_offset)

    def end_transaction(self, partition_index: int, producer_id: int, marker: Marker, encoded: bytearray) -> None:
        """Writes the marker of a transaction to a partition of the log of groups, and commits or drops what it has
        pending there. `encoded` is the marker's batch. A partition that was never written to stays so. Raises NotSaved,
        also until all groups are read; and Refused for a producer that is fenced.
        """
        if not self._is_loaded:  # the marker would be behind what is read, and decide nothing
            raise NotSaved("the log of groups has not been read")
        if self.log.append_marker(partition_index, encoded, self._now_ms):
            self._replay_marker(GroupTransaction(partition_index, producer_id), marker)

    def partition_of_group(self, group_id: str, now_ms: int) -> int:
        """Returns which partition of `__consumer_offsets` has the offsets of a group. Creates the topic if there is
        none. Raises NotSaved.
        """
        return self.log.partition_of(group_id, now_ms)

    def group_for_commit(self, group_id: str, generation: int, not_found: ErrorCode) -> Group:
        """Returns the group for a commit: a client that is not a member may create it. Raises Refused."""
        if group_id not in self.groups and generation >= 0:
            raise Refused(not_found, f"there is no group {group_id!r}")
        return self.find_or_make(group_id)

    def delete_offsets(self, group_id: str, wanted: Sequence[tuple[str, int]], actor: "Actor") -> None:
        """Removes committed offsets. What the group has not read there is noted as lost. Raises NotSaved."""
        offsets = (
            (topic, index, value.offset)
            for topic, index in wanted
            if (value := self.offsets.get(group_id, topic, index)) is not None
        )
        self._broker.ledger.note_deleted_offsets(group_id, offsets, self._now_ms, actor)
        self.remove_offsets(group_id, wanted)

    def remove_offsets(self, group_id: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Removes offsets, committed and pending. Raises NotSaved."""
        changes = [
            records.OffsetRemoved(group_id, topic, partition)
            for topic, partition in wanted
            if self.offsets.has_place(group_id, (topic, partition))
        ]
        if changes:
            self._before_removal(group_id, [(change.topic, change.partition) for change in changes])
            self._write(group_id, changes)
            self._forget_later(self.groups[group_id])

    def _before_removal(self, group_id: str, places: list[tuple[str, int]]) -> None:
        """Notes where a group stands that holds or slows topics, once its commits are gone. Raises NotSaved."""
        try:
            self._broker.backlog.groups.before_removal(group_id, places, self._now_ms)
        except StorageError as error:
            raise NotSaved(f"cannot note where the group stands from now on: {error}") from None

    # Topics that are deleted

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        """Removes the offsets of deleted topics."""
        # A topic of the same name may exist already, so topics are compared by id, if the offset has one.
        gone = {(topic.name, topic_id) for topic in topics for topic_id in (topic.topic_id, ZERO_UUID)}
        if self._has_resumed:  # if not, `_resume` does it
            work = self._remove_offsets_where(lambda topic, value: (topic, value.topic_id) in gone)
            IncrementalResponse(work, self._broker.start_job)

    def _remove_offsets_where(self, is_gone: Callable[[str, OffsetCommitValue], bool]) -> Generator[None, None, None]:
        for group_id in self.offsets.group_ids():
            if gone := list(self.offsets.places_where(group_id, is_gone)):
                try:
                    self.remove_offsets(group_id, gone)
                except NotSaved:
                    logger.warning("cannot remove committed offsets of deleted topics; the next start retries it")
                    return
            yield

    def pull_back_offsets(self) -> Generator[None, None, None]:
        """Moves committed offsets behind the end of their log back to it. A backup may have them, as it ends logs where
        transactions allow that: consumers would skip what is appended there next. Raises NotSaved.
        """
        for group_id in self.offsets.group_ids():
            changes = [
                records.OffsetCommitted(group_id, topic, index, _moved(value, log.end_offset))
                for topic, partitions in self.offsets.of_group(group_id).items()
                for index, value in partitions.items()
                if (partition := self._broker.partition(topic, index)) is not None
                and (log := partition.log) is not None
                and value.offset > log.end_offset
            ]
            if changes:
                self._write(group_id, changes)
            yield

    def _is_gone(self, topic_name: str, value: OffsetCommitValue) -> bool:
        topic = self._broker.topic(topic_name)
        return topic is None or value.topic_id not in (topic.topic_id, ZERO_UUID)


def _moved(value: OffsetCommitValue, offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp, topic_id=value.topic_id
    )
