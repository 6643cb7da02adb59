"""The coordinator of queues: the states of all share partitions. Decides, appends, replays, responds when flushed.

A share partition (`share_partition`) decides. The changes become records, which are appended to the state log (`log`)
and replayed at once, by the same function that replays the log at the start. What a member has acquired is in memory
only: after a restart, those records are available again.

Until the log has been read (`loading`), requests are refused with COORDINATOR_LOAD_IN_PROGRESS (`begin`).
"""

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import BROKER, Actor, UnfinishedRange
from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import Answer, DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.groups.share.group import ShareGroup
from tailrace.broker.groups.timers import Timer, Timers
from tailrace.broker.metadata.records import ConfigChanged, MetadataRecord
from tailrace.broker.metadata.state import GROUP_RESOURCE
from tailrace.broker.queues.dead_letters.writers import DEAD_LETTERS, DeadLetters
from tailrace.broker.queues.delivery.screening import Now, Rules, rules_of
from tailrace.broker.queues.delivery.sessions import Member, ShareSessions
from tailrace.broker.queues.group_queues import GroupQueues, QueueTable
from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import UNCHANGED, Decision, EndReason, StateUpdate
from tailrace.broker.queues.queue_partition import Decided, QueuePartition
from tailrace.broker.queues.starts import FindStartJob, known_start
from tailrace.broker.queues.state_log.conversion import snapshot_of, value_of
from tailrace.broker.queues.state_log.loaded_states import LoadedState
from tailrace.broker.queues.state_log.loading import LOADING, Loading
from tailrace.broker.queues.state_log.log import ShareStateLog
from tailrace.broker.queues.state_log.needed_records import NeededLog
from tailrace.broker.queues.state_log.records import (
    UNKNOWN_START,
    ShareChange,
    ShareSnapshotted,
    ShareSnapshotValue,
    ShareUpdated,
)
from tailrace.broker.queues.state_log.snapshots import Snapshots
from tailrace.facts.losses import LossReason
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.queues")

SHARE_PARTITIONS_MAX = 20_000  # some 3 KB each
RANGES_OF_A_RECORD = 3_000  # 60 KB
TOMBSTONES_AT_ONCE = 500
DUE_AT_ONCE = 100  # deadlines per turn of the loop: each may release a thousand ranges
RETRY_MS = 1_000
DUE = "due"  # the next deadline of a group: a lock that runs out, or a parked record whose time comes


class QueueCoordinator(QueueTable):
    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        self.log = ShareStateLog(broker)
        self.loading = Loading(self, broker)
        self.needed = NeededLog()
        self.timers = Timers()
        self.sessions = ShareSessions(broker.configs.number("group.share.max.share.sessions"), self.release)
        self.dead_letters = DeadLetters(self, broker)
        self.snapshots = Snapshots(self, broker.start_job)
        self._broker = broker
        self._now_ms = 0
        self._is_waking = False
        self._to_wake: dict[QueuePartition, None] = {}
        broker.metadata_log.observers.append(self._metadata_changed)

    # The clock, and the start

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @property
    def steady_ms(self) -> int:
        return self.timers.now

    @property
    def now(self) -> Now:
        return Now(self._now_ms, self.steady_ms, self._broker.clock.is_trusted)

    def tell_time(self, now_ms: int, steady_ms: int) -> None:
        """Sets the time. `steady_ms` is of a clock that never jumps, and stops while the broker is held up."""
        self._now_ms = now_ms
        self.timers.now = max(self.timers.now, steady_ms)
        self.loading.begin()

    def begin(self, call: Call) -> None:
        """Checks that queues can be served. Raises Refused until the log is read."""
        self.tell_time(call.now_ms, call.steady_ms)
        self.loading.require_done()

    def adopt(self, key: ShareKey, partition: Partition, loaded: LoadedState) -> None:
        """Takes over a state that was read at the start."""
        queues = self.group(key.group)
        queue = QueuePartition(self._broker, key, partition, loaded.state, loaded.created_ms)
        queue.epoch = loaded.epoch
        if loaded.state is not None:
            loaded.state.settings = queues.of_partitions
        self.add(queues, queue)

    def resume(self, queue: QueuePartition) -> None:
        """Makes a state agree with its log, which may begin later by now, or end earlier after a restore. Raises
        NotSaved.
        """
        if queue.state is None:
            self.find_start(queue)
            return
        if queue.partition.unavailable is not None:
            return
        end, state = queue.partition.end_offset, queue.state
        if state.start_offset > end or state.end_offset > end:  # what comes to lie there is another record
            logger.warning("%s of %s begins anew at %s, where its log ends", queue.partition.name, queue.key.group, end)
            self.begin_at(queue, queue.persisted_before(end))
        self._log_start_moved(queue)
        self.set_deadline(queue)
        self.dead_letters.resume(queue)

    # Groups whose configs change

    def _metadata_changed(self, changes: Iterable[MetadataRecord]) -> None:
        changed = {
            one.resource_name
            for one in changes
            if isinstance(one, ConfigChanged) and one.resource_type == GROUP_RESOURCE
        }
        for group in changed & self.groups.keys():
            queues = self.groups[group]
            queues.settings = self.current_settings(group)
            for queue in queues.partitions.values():
                if queue.state is not None:
                    queue.state.settings = queues.of_partitions
                self.wake(queue)

    # What the membership of groups needs

    def initialize(
        self, group_id: str, topic_id: bytes, partitions: Collection[int], epoch: int, start: int | None = None
    ) -> None:
        """Gives partitions a state, unless they have one: from `start` on, or from where the configs of the group say.
        Raises Refused.
        """
        self.loading.require_done()
        topic = self._broker.metadata.topics_by_id.get(topic_id)
        found = [topic.partition(index) for index in partitions] if topic is not None else []
        new = [one for one in found if one is not None and self.find(group_id, topic_id, one.index) is None]
        if self.count + len(new) > SHARE_PARTITIONS_MAX:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there are {SHARE_PARTITIONS_MAX} share partitions")
        self._initialize(group_id, new, epoch, start)

    def _initialize(self, group_id: str, partitions: Sequence[Partition], epoch: int, given: int | None) -> None:
        queues = self.group(group_id)
        made = []
        for partition in partitions:
            key = ShareKey(group_id, partition.topic.topic_id, partition.index)
            start = known_start(partition, queues.settings) if given is None else given
            state = SharePartition(queues.of_partitions, start) if start is not None else None
            queue = QueuePartition(self._broker, key, partition, state, self._now_ms)
            queue.epoch = epoch
            made.append((queue, StateUpdate(UNKNOWN_START if start is None else start)))
        self.append([self._snapshot(queue, update) for queue, update in made])
        for queue, _ in made:
            self.add(queues, queue)
            if queue.state is None:
                self.find_start(queue)

    def begin_lost(self, group_id: str, partition: Partition) -> QueuePartition | None:
        """Gives a partition a state that the group had one of: a power cut, or a repair, may have kept the record that
        says so, and not the state. Returns None if the group never had one. Raises Refused.
        """
        topic_id, index = partition.topic.topic_id, partition.index
        group = self._broker.groups.groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.is_empty:  # it may be about to be deleted
            return None
        if index not in group.partitions_with_state(topic_id):
            return None
        logger.warning("the state of %s of share group %s is lost: it begins anew", partition.name, group_id)
        self.initialize(group_id, topic_id, [index], group.replayed.epoch)
        return self.find(group_id, topic_id, index)

    def find_start(self, queue: QueuePartition) -> None:
        """Finds out in a thread where the group begins, unless that is under way."""
        if queue.is_starting:
            return
        queue.is_starting = True
        job = FindStartJob(queue.partition, self.groups[queue.key.group].settings, self._now_ms)

        def found() -> None:
            queue.is_starting = False
            if not queue.is_gone and queue.state is None:
                try:
                    self.begin_at(queue, StateUpdate(job.offset))
                except NotSaved:
                    return  # the next fetch tries again
                self.wake(queue)

        self._broker.start_job(job, found)

    def begin_at(self, queue: QueuePartition, update: StateUpdate) -> None:
        """Gives a share partition another state than it has. Raises NotSaved."""
        self.append([self._snapshot(queue, update)])
        queue.state = SharePartition(self.groups[queue.key.group].of_partitions, max(0, update.start_offset))
        queue.state.replay(update._replace(start_offset=UNCHANGED), self.steady_ms)

    def _snapshot(self, queue: QueuePartition, update: StateUpdate) -> ShareSnapshotted:
        return ShareSnapshotted(queue.key, self.snapshot_value(queue, update))

    def snapshot_value(
        self, queue: QueuePartition, update: StateUpdate, *, is_partial: bool = False
    ) -> ShareSnapshotValue:
        epoch, leader_epoch = self.needed.next_epoch(queue.key), self._broker.leader_epoch(queue.partition)
        return snapshot_of(queue, update, epoch, leader_epoch, self._now_ms, is_partial=is_partial)

    def deleted(self, group_id: str, actor: Actor = BROKER) -> None:
        """Removes all states of a group. Raises Refused."""
        self.loading.require_done()
        queues = self.groups.get(group_id)
        if queues is not None:
            gone = list(queues.partitions.values())
            lost = [queue.unfinished_before(queue.partition.high_watermark) for queue in gone]
            self._broker.ledger.note_unfinished(group_id, lost, LossReason.GROUP_DELETED, self._now_ms, actor)
            self.forget(gone)

    def forget(self, queues: Sequence[QueuePartition]) -> None:
        """Removes these states. Raises NotSaved."""
        if queues:
            self.append([ShareSnapshotted(queue.key, None) for queue in queues])
            for queue in queues:
                self.remove(queue)
                self.wake(queue)

    def when_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once all states are on disk."""
        return self.log.when_safe(answer)

    # Topics and logs that change

    def topics_deleted(self, topics: Iterable[Topic]) -> None:
        """Removes the states of deleted topics."""
        gone = [queue for topic in topics for queue in self.of_topic(topic.topic_id)]
        if gone and self.loading.is_done:  # if not, `loading` does it
            IncrementalResponse(self._forget_all(gone), self._broker.start_job)

    def _forget_all(self, gone: Sequence[QueuePartition]) -> Generator[None, None, None]:
        for first in range(0, len(gone), TOMBSTONES_AT_ONCE):
            try:
                self.forget([queue for queue in gone[first : first + TOMBSTONES_AT_ONCE] if not queue.is_gone])
            except NotSaved:
                logger.warning("cannot remove the queues of deleted topics; the next start retries it")
                return
            yield

    def log_start_moved(self, partition: Partition) -> None:
        """A partition begins later now: what is not finished before is lost. That was noted before."""
        for queue in list(self.of_partition(partition.topic.topic_id, partition.index)):
            try:
                self._log_start_moved(queue)
            except NotSaved:
                return  # as after a restart, the next one finds it

    def _log_start_moved(self, queue: QueuePartition) -> None:
        """Raises NotSaved."""
        state, start = queue.state, queue.partition.start_offset
        while state is not None and (decision := state.archive_before(start)).update is not None:
            self.write([(queue, decision)])

    def rules_of(self, queue: QueuePartition) -> Rules | None:
        """Returns what the topic and the group say about when records may be delivered; None if that is nothing."""
        orders_by_key = self.settings_of(queue.key.group).orders_by_key
        return rules_of(queue.partition.topic.config.queue, orders_by_key=orders_by_key)

    # Writing

    def append(self, changes: Sequence[ShareChange]) -> None:
        """Appends records to the log. Raises NotSaved."""
        if changes:
            for change, record in zip(changes, self.log.append(changes, self._now_ms), strict=True):
                self.needed.note(change, record.offset, len(record.key or b"") + len(record.value or b""))

    def write(self, decided: Sequence[Decided]) -> None:
        """Appends decisions, as one batch, and replays them. Raises NotSaved, and then nothing has changed."""
        stamped = [(queue, decision, self.dead_letters.stamped(queue, decision)) for queue, decision in decided]
        self.append([change for queue, _, update in stamped for change in self._changes(queue, update)])
        for queue, decision, update in stamped:
            if update is not None and queue.state is not None:
                queue.state.replay(update, self.steady_ms)
            self.dead_letters.add(queue, decision)
            self._count(queue, decision)
            self.set_deadline(queue)
            self.wake(queue)

    def _changes(self, queue: QueuePartition, update: StateUpdate | None) -> Iterator[ShareChange]:
        if update is not None:
            epoch, leader_epoch = self.needed.epoch(queue.key), self._broker.leader_epoch(queue.partition)
            for piece in update.pieces(RANGES_OF_A_RECORD):
                yield ShareUpdated(queue.key, value_of(piece, epoch, leader_epoch))

    def _count(self, queue: QueuePartition, decision: Decision) -> None:
        if not (decision.accepted or decision.released or decision.ended):
            return
        group, partition = queue.key.group, queue.partition
        queue.moved_ms = self._now_ms
        self._broker.backlog.groups.committed(group, partition.topic, self._now_ms)
        queue.outcomes.add(decision)
        expired = [one for one in decision.ended if one.reason is EndReason.EXPIRED and not one.is_dead_letter]
        if expired:
            records = sum(one.last - one.first + 1 for one in expired)
            lost = UnfinishedRange(partition, expired[0].first, expired[-1].last + 1, records)
            self._broker.ledger.note_unfinished(group, [lost], LossReason.EXPIRED, self._now_ms)

    # Deadlines

    def set_deadline(self, queue: QueuePartition) -> None:
        """Called after records were acquired, or their state has changed."""
        deadline = queue.next_deadline
        queues = self.groups.get(queue.key.group)
        if deadline is not None and queues is not None and (queues.next_due is None or deadline < queues.next_due):
            self._set_due(queues, deadline)

    def _set_due(self, queues: GroupQueues, deadline: int) -> None:
        queues.next_due = deadline
        self.timers.set(Timer(queues.group, DUE), max(0, deadline - self.timers.now))

    def advance(self) -> None:
        """Handles all deadlines that are due."""
        for timer in islice(self.timers.due(), DUE_AT_ONCE):
            if timer.kind == LOADING:
                self.loading.go_on()
                continue
            if timer.kind == DEAD_LETTERS:
                self.dead_letters.due(timer)
                continue
            queues = self.groups.get(timer.group_id)
            if queues is not None:
                queues.next_due = None
                self._handle_due(queues)

    def _handle_due(self, queues: GroupQueues) -> None:
        now = self.steady_ms
        decided: list[Decided] = []
        for queue in queues.partitions.values():
            deadline = queue.next_deadline
            if queue.state is not None and deadline is not None and deadline <= now:
                is_due = queue.put_off is not None and queue.put_off[1] <= now
                if is_due:
                    queue.put_off = None
                if queue.state.unpark(now) or is_due:
                    self.wake(queue)
                decided.append((queue, queue.state.expire_locks(now)))
        try:
            self.write([one for one in decided if one[1].update is not None])
        except NotSaved:
            self._set_due(queues, now + RETRY_MS)
            return
        for queue in queues.partitions.values():
            self.set_deadline(queue)

    def release(self, member: Member) -> None:
        """Releases all that a member has acquired, because it has closed its session, or its connection is lost. If
        that cannot be written, the locks run out.
        """
        queues = self.groups.get(member.group)
        left = list(queues.partitions.values()) if queues is not None else []
        try:
            while left:
                decided = [
                    (queue, queue.state.release_member(member.member_id)) for queue in left if queue.state is not None
                ]
                decided = [one for one in decided if one[1].update is not None]
                self.write(decided)
                left = [queue for queue, _ in decided]
        except NotSaved:
            pass

    # Fetches that wait

    def wake(self, queue: QueuePartition) -> None:
        """Has the fetches look again that wait for a share partition, the first one first, as long as there is anything
        for them. Fetches of other share partitions that this wakes have their turn after these.
        """
        if not queue.fetches:
            return
        self._to_wake[queue] = None
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while self._to_wake:
                self._wake(self._to_wake.popitem()[0])
        finally:
            self._is_waking = False

    def _wake(self, queue: QueuePartition) -> None:
        queues = self.groups.get(queue.key.group)
        reads_committed = queues is not None and queues.settings.reads_committed
        for fetch in list(queue.fetches):
            if not queue.has_more(self.steady_ms, reads_committed=reads_committed):
                return
            fetch.look_again()
