"""Serves a ShareFetch: finds records, acquires them for the member, or waits until there are any.

    look     what each partition of the session has now, up to the limits; nothing is acquired yet
    enough   `min_bytes`, an error, or no time to wait: the records are acquired, and the response is sent
    park     else the request waits at its share partitions; each has it look again when there is more
    cold     if looking would wait for a disk, a thread reads what is needed. Meanwhile other fetches look past these
             share partitions, and then all look again

A response carries slices of files, whole batches as they lie in the log. The member takes of them what it has acquired.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import DelayedResponse, Flushed, Pause
from tailrace.broker.core.errors import Refused, code_of, in_short
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.queues.delivery.deliveries import InspectJob, UnreadRange, deliveries_of
from tailrace.broker.queues.delivery.reads import (
    FoundRecords,
    OpenedRange,
    ReadJob,
    WantedRange,
    find_records,
    open_range,
    wanted_range,
)
from tailrace.broker.queues.delivery.sessions import ShareSession
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.broker.queues.partition.states import Acquired, EndReason
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.log.layout.errors import LogError
from tailrace.log.segment.segment import WouldWait
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from tailrace.records.errors import CorruptBatch

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.queues")

Partitions = dict[TopicPartitionId, PartitionData]
LOOKS_MAX = 10  # in a row, while all there is has no records for members


class Limits(NamedTuple):
    """What a request asks for."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    is_strict: bool
    lock_ms: int | None  # if it is not that of the group


class Target(NamedTuple):
    """A partition that the member fetches: its queue, or an error."""

    place: TopicPartitionId
    queue: QueuePartition | None
    error: ErrorCode = ErrorCode.NONE


def by_priority(targets: list[Target]) -> list[Target]:
    """Puts the partitions of topics with tailrace.priority=partition in the order of their numbers, each topic in the
    places that it has.
    """
    topics: dict[bytes, list[int]] = {}
    for place, (_, queue, _) in enumerate(targets):
        if queue is not None and queue.partition.topic.config.queue.in_order_of_partitions:
            topics.setdefault(queue.key.topic_id, []).append(place)
    for places in topics.values():
        ordered = sorted((targets[place] for place in places), key=lambda target: target.place)
        for place, target in zip(places, ordered, strict=True):
            targets[place] = target
    return targets


class Look:
    """What one pass over the targets has found. What has records must be released."""

    def __init__(self) -> None:
        self.found: list[FoundRecords] = []
        self.errors: dict[TopicPartitionId, Exception] = {}
        self.length = 0

    def release(self) -> None:
        for one in self.found:
            one.release()
        self.found.clear()
        self.length = 0


class ShareFetch(DelayedResponse[ShareFetchResponse]):
    """One request. `start` resolves it at once, or later. `told` are partitions that the response must name, with the
    errors of their acknowledgements.
    """

    __slots__ = (
        "_broker",
        "_call",
        "_is_busy",
        "_is_due",
        "_is_over",
        "_limits",
        "_missing",
        "_opened",
        "_session",
        "_told",
        "_waits_at",
    )

    def __init__(
        self,
        limits: Limits,
        session: ShareSession,
        told: Mapping[TopicPartitionId, Refused | None],
        call: Call,
        broker: "Broker",
    ) -> None:
        super().__init__(max(0, limits.wait_ms))
        self._broker = broker
        self._call = call
        self._limits = limits
        self._session = session
        self._told = told
        self._waits_at: dict[QueuePartition, None] = {}
        self._opened: dict[QueuePartition, OpenedRange | Exception] = {}  # by a thread
        self._is_busy = False
        self._is_over = False
        self._is_due = limits.wait_ms <= 0 or limits.bytes_min <= 0 or limits.records_max <= 0

    waits_for_metadata = True  # by itself, before it responds

    def start(self, unflushed: Sequence[Flushed]) -> None:
        """Looks for records, once these flushes are done: then the acknowledgements are on disk. If one fails the
        process is about to stop, and the response is never sent.
        """
        self._session.when_ended[self._session_ended] = None
        self._missing = len(unflushed)
        self._is_busy = bool(unflushed)
        for flushed in unflushed:
            flushed.when_resolved(self._is_flushed)
        self.look_again()

    def _is_flushed(self, error: LogError | None) -> None:
        self._missing -= error is None
        if not self._missing:
            self._is_busy = False
            self.look_again()

    # What has it look again

    def look_again(self) -> None:
        if self._is_busy or self._is_over:
            return
        try:
            self._look()
        except Exception:  # of this fetch alone: it may be that of another client's request that has woken it
            logger.exception("unexpected error while handling a ShareFetch")
            self._end()
            self.resolve(ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    def expire(self) -> None:
        """Responds with what is available now; if a thread is reading, when that is done."""
        self._is_due = True
        self.look_again()

    def hurry(self) -> None:
        self.expire()

    def abandon(self) -> None:
        super().abandon()
        self._end()

    def _session_ended(self) -> None:
        """The client has begun another session, or its connection is lost."""
        if not self._is_over:
            self._end()
            self.resolve(session_ended())

    def _end(self) -> None:
        self._is_over = True
        self._session.when_ended.pop(self._session_ended, None)
        for queue in self._waits_at:
            queue.forget(self)
        self._waits_at.clear()

    # Looking

    def _look(self) -> None:
        for _ in range(LOOKS_MAX):
            targets = by_priority([self._target(place) for place in self._session.rotated()])
            try:
                look = self._find(targets)
            except WouldWait:
                self._read_in_thread(targets)
                return
            if not self._finish_holes(look) or look.length:
                unread, has_changes = self._apply_rules(look)
                if unread:
                    look.release()
                    self._inspect_in_thread(unread)
                    return
                if not has_changes:
                    break
            look.release()
        else:  # other requests have their turn
            self._broker.start_job(Pause(), self.look_again)
            return
        is_enough = self._is_due or bool(look.errors) or look.length >= self._limits.bytes_min
        if is_enough and self._broker.metadata_log.is_settled:
            self._respond(look)
            return
        look.release()
        if is_enough:
            self._settle()
        else:
            self._park(targets)

    def _settle(self) -> None:
        """Looks again when the metadata that the response depends on is on disk."""
        self._missing, self._is_busy = 1, True
        self._broker.metadata_log.when_settled().when_resolved(self._is_flushed)

    def _target(self, place: TopicPartitionId) -> Target:
        topic = self._broker.metadata.topics_by_id.get(place[0])
        if topic is None:
            return Target(place, None, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partition(place[1])
        if partition is not None and partition.unavailable is not None:
            return Target(place, None, ErrorCode.KAFKA_STORAGE_ERROR)
        queues, group = self._broker.queues, self._session.member.group
        queue = queues.find(group, *place)
        if queue is None and partition is not None:
            try:
                queue = queues.begin_lost(group, partition)
            except Refused as error:
                return Target(place, None, error.code)
        if queue is None:
            return Target(place, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if queue.state is None:
            queues.find_start(queue)
        elif queue.state.start_offset < queue.partition.start_offset:  # unless that could not be written, it is known
            queues.log_start_moved(queue.partition)
        return Target(place, queue)

    def _find(self, targets: list[Target]) -> Look:
        """Raises WouldWait."""
        look, records_left = Look(), self._limits.records_max
        try:
            for place, queue, error in targets:
                if queue is None:
                    look.errors[place] = Refused(error, "there is nothing to fetch for this group")
                elif not queue.is_reading and records_left > 0:
                    records_left -= self._find_in(queue, look, records_left)
        except BaseException:
            look.release()
            raise
        return look

    def _find_in(self, queue: QueuePartition, look: Look, records_left: int) -> int:
        """Adds what a share partition has. Returns how many records that are. Raises WouldWait."""
        bytes_left = self._limits.bytes_max - look.length
        if look.length and bytes_left <= 0:
            return 0
        try:
            found = self._open(queue, bytes_left, records_left)
        except (LogError, CorruptBatch, OSError) as error:
            logger.warning("a share fetch of %s failed: %s", queue.partition.name, error)
            look.errors[queue.place] = error
            return 0
        if found is None:
            return 0
        if look.length and found.length > bytes_left:  # only the first may exceed the limit
            found.release()
            return 0
        look.found.append(found)
        look.length += found.length
        return sum(batch.last - batch.first + 1 for batch in found.batches)

    def _open(self, queue: QueuePartition, bytes_max: int, records_max: int) -> FoundRecords | None:
        """Raises WouldWait, LogError, CorruptBatch."""
        wanted = self._wanted(queue, bytes_max, records_max)
        if wanted is None:
            return None
        opened = self._opened.pop(queue, None)
        if isinstance(opened, Exception):
            raise opened
        if opened is not None and not opened.serves(wanted):
            opened.records.release()
            opened = None
        opened = opened or open_range(wanted, wait=False)
        if opened is None:
            return None
        return find_records(wanted, opened, records_max, is_strict=self._limits.is_strict)

    def _wanted(self, queue: QueuePartition, bytes_max: int, records_max: int) -> WantedRange | None:
        queues = self._broker.queues
        reads_committed = queues.settings_of(queue.key.group).reads_committed
        return wanted_range(queue, bytes_max, self._limits.bytes_min, records_max, reads_committed, queues.steady_ms)

    def _finish_holes(self, look: Look) -> bool:
        """Finishes offsets without records for members. Returns whether there were any."""
        decided = [
            (one.queue, one.state.archive(one.holes, EndReason.GAP))
            for one in look.found
            if one.holes and one.queue.state is one.state
        ]
        try:
            self._broker.queues.write(decided)
        except NotSaved as error:
            look.errors |= {queue.place: error for queue, _ in decided}
            return False
        return bool(decided)

    def _apply_rules(self, look: Look) -> tuple[list[UnreadRange], bool]:
        """Leaves what may be delivered. Returns what has to be read first, and whether to look again."""
        try:
            look.found, unread, has_changes = deliveries_of(look.found, self._broker.queues)
        except NotSaved as error:
            look.errors |= {one.queue.place: error for one in look.found}
            look.release()
            return [], False
        look.length = sum(one.length for one in look.found)
        return unread, has_changes

    def _inspect_in_thread(self, unread: Sequence[UnreadRange]) -> None:
        self._start_job(InspectJob(unread), [one.queue for one in unread])

    # Reading what is not in memory

    def _read_in_thread(self, targets: list[Target]) -> None:
        bytes_left, records_max = self._limits.bytes_max, self._limits.records_max
        reading: list[WantedRange] = []
        for _, queue, _ in targets:
            if queue is None or queue.is_reading or (reading and bytes_left <= 0):
                continue
            wanted = self._wanted(queue, self._limits.bytes_max, records_max)
            if wanted is not None:
                bytes_left -= wanted.bytes_max
                reading.append(wanted)
        self._start_job(ReadJob(reading), [wanted.queue for wanted in reading])

    def _start_job(self, job: ReadJob | InspectJob, reading: Sequence[QueuePartition]) -> None:
        """Looks again when the job is done. Other fetches look past these share partitions meanwhile."""
        self._is_busy = True
        for queue in reading:
            queue.is_reading = True

        def finish() -> None:
            job.finish()
            self._is_busy = False
            for queue in reading:
                queue.is_reading = False
            if isinstance(job, ReadJob):
                self._opened = job.opened
            self.look_again()
            self._release_opened()
            for queue in reading:
                self._broker.queues.wake(queue)

        self._broker.start_job(job, finish)

    def _release_opened(self) -> None:
        opened, self._opened = self._opened, {}
        for one in opened.values():
            if isinstance(one, OpenedRange):
                one.records.release()

    # Waiting

    def _park(self, targets: list[Target]) -> None:
        wanted = dict.fromkeys(queue for _, queue, _ in targets if queue is not None)
        for queue in self._waits_at.keys() - wanted.keys():
            queue.forget(self)
        for queue in wanted.keys() - self._waits_at.keys():
            queue.wait(self)
        self._waits_at = wanted

    # Responding

    def _respond(self, look: Look) -> None:
        self._end()
        data = told_partitions(self._told)
        self._add_errors(data, look)
        self._acquire_all(data, look)
        self.resolve(_response(data, self._lock_ms))

    @property
    def _lock_ms(self) -> int:
        return self._limits.lock_ms or self._broker.queues.settings_of(self._session.member.group).lock_ms

    def _add_errors(self, data: Partitions, look: Look) -> None:
        for place, error in look.errors.items():
            one = data.setdefault(place, PartitionData(partition_index=place[1]))
            one.error_code, one.error_message = code_of(error), in_short(str(error))

    def _acquire_all(self, data: Partitions, look: Look) -> None:
        """Acquires what was found, for the response."""
        records_left = self._limits.records_max
        for found in look.found:
            place, acquired = found.queue.place, self._acquire(found, records_left)
            if acquired:
                records_left -= sum(one.last - one.first + 1 for one in acquired)
                one = data.setdefault(place, PartitionData(partition_index=place[1]))
                one.records = found.bytes_of(acquired)
                one.acquired_records = [
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ]
            found.release()

    def _acquire(self, found: FoundRecords, records_left: int) -> list[Acquired]:
        queue, limits, queues = found.queue, self._limits, self._broker.queues
        if records_left <= 0 or not found.batches or queue.state is not found.state or queue.is_gone:
            return []
        first = max(found.first, found.state.start_offset)  # holes before it are finished
        acquired = found.state.acquire(
            self._session.member.member_id,
            first,
            found.ranges_from(first),
            records_max=records_left,
            now_ms=queues.steady_ms,
            lock_ms=self._lock_ms,
            is_strict=limits.is_strict,
            batch_size=limits.batch_size,
        )
        queues.set_deadline(queue)
        return acquired


def session_ended() -> ShareFetchResponse:
    return ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND, error_message="the share session has ended")


def response_of(told: Mapping[TopicPartitionId, Refused | None], lock_ms: int) -> ShareFetchResponse:
    """Returns a response without records."""
    return _response(told_partitions(told), lock_ms)


def told_partitions(told: Mapping[TopicPartitionId, Refused | None]) -> Partitions:
    data: Partitions = {}
    for place, refusal in told.items():
        data[place] = one = PartitionData(partition_index=place[1])
        if refusal is not None:
            one.acknowledge_error_code, one.acknowledge_error_message = refusal.code, refusal.message
    return data


def _response(data: Partitions, lock_ms: int) -> ShareFetchResponse:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for (topic_id, _), one in data.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
        topic.partitions.append(one)
    return ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))
