"""The loss ledger: records every deletion of records, and the groups that had not read them, in `__tailrace_losses`.

    cut      noted before the start of a log moves; files go when the note is flushed (`when_flushed`, `Checkpointer`)
    missed   beside it, for each group whose position the cut passes: found by the sorted commits of the partition.
             Also when a group moves to before the start
    resumed  when such a group commits at the new start or behind it, or is deleted: what it has missed in all
    skipped  when a client moves a group forward without reading what lies between (`resets`), or deletes its offsets;
             when records of a share group expire; and beside a cut, for a group that the topic names (`named_groups`)
             and that has not committed yet, and for a share group with unfinished records there

A crash may come after a note was flushed, and before the new start of the log was: then the next start carries out the
deletion that was noted (`unfinished_cuts`). So each loss is noted once, or the records are still there. The format is
in `facts/losses`.

A note of many groups takes several batches. The last one has the cut: without it, nothing is deleted.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.backlog.readers import BacklogReader
from tailrace.broker.core.delayed import Answer, DelayedResponse, Flushed, WaitingResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import LOSSES_TOPIC, Topic
from tailrace.broker.metadata.internal_topics import InternalTopic, records_of, size_of
from tailrace.facts.losses import Loss, LossKind, LossReason, decode
from tailrace.log.jobs import NO_ROOM
from tailrace.log.layout.errors import LogError, StorageError
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.log.retention import SegmentFacts, facts_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.backlog")


UNWRITTEN_MAX = 10_000  # records that are kept in memory
NOTES_AT_ONCE = 100  # of these, per tick
SEGMENT_BYTES = 1 << 20
BATCH_BYTES_MAX = SEGMENT_BYTES // 2
SEGMENTS_READ_MAX = 64  # at a start after a crash


class NotRecorded(Refused):
    """The ledger took no write, so nothing may be deleted. Clients try again."""

    def __init__(self, reason: object) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot record which messages are lost: {reason}")


class Actor(NamedTuple):
    """The client that causes a loss; None where it is the broker itself."""

    client_id: str | None = None
    user: str | None = None


BROKER = Actor()
Cuts = Mapping[tuple[str, int], int]  # by topic id and partition: where the last cut ends
KEPT_FOR_EVER = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(SEGMENT_BYTES),  # the last ones are read at a start after a crash
}


class RemovedLog(NamedTuple):
    """A log that is no longer any topic's, and the records that it had."""

    name: TopicPartition
    topic_id: bytes
    start: int
    end: int
    size: int

    @classmethod
    def of(cls, name: TopicPartition, log: Log) -> "RemovedLog":
        return cls(name, log.topic_id or ZERO_UUID, log.start_offset, log.end_offset, log.size)

    def cut(self, now_ms: int) -> Loss:
        return Loss(
            kind=LossKind.CUT,
            topic=self.name.topic,
            topic_id=self.topic_id.hex(),
            partition=self.name.partition,
            first=self.start,
            last=self.end - 1,
            records=self.end - self.start,
            exact=False,
            at=now_ms,
            reason=LossReason.TOPIC_DELETED,
            size=self.size,
        )


class UnfinishedRange(NamedTuple):
    """Records of a partition from `first` to before `before`, some of which a share group has not finished."""

    partition: Partition
    first: int
    before: int
    records: int


class LossLedger:
    def __init__(self, broker: "Broker", readers: Sequence[BacklogReader]) -> None:
        self._broker = broker
        self._readers = readers
        self._topic = InternalTopic(broker, LOSSES_TOPIC, 1, lambda: KEPT_FOR_EVER)
        self.noted = 0  # records, since the start
        self._has_failed = False
        self._unwritten: deque[list[Record]] = deque()  # notes, while the disk is full
        self._no_room_for = 0  # notes below this offset cannot be flushed, as the disk is full
        self._waiting: list[Flushed] = []
        broker.flushes.found_no_room = self._found_no_room

    @property
    def is_ready(self) -> bool:
        """Whether it is known which groups have read what: not while groups are being read at the start."""
        return not self._broker.positions_are_loading

    def require_ready(self) -> None:
        """Raises NotRecorded."""
        if not self.is_ready:
            raise NotRecorded("the positions of groups are still being read: try again")

    # Deletions

    def note_deletion(
        self, partition: Partition, before: int, reason: LossReason, now_ms: int, actor: Actor = BROKER
    ) -> None:
        """Notes that all records below `before` are about to be deleted. Raises NotRecorded: then they must stay."""
        if partition.topic.is_shown_as_internal or partition.start_offset >= before:
            return
        self._write(self._losses_of(partition, before, reason, now_ms, actor), now_ms)

    def note_topic_deletion(self, topics: Iterable[Topic], now_ms: int, actor: Actor) -> None:
        """Notes that the logs of deleted topics are about to go. A failure is logged: the topics are gone already."""
        losses = chain.from_iterable(
            self._losses_of(partition, partition.end_offset, LossReason.TOPIC_DELETED, now_ms, actor)
            for topic in topics
            if not topic.is_shown_as_internal
            for partition in topic.touched
            if partition.start_offset < partition.end_offset
        )
        self._write_or_log(losses, now_ms)

    def _losses_of(
        self, partition: Partition, before: int, reason: LossReason, now_ms: int, actor: Actor
    ) -> Iterator[Loss]:
        start = partition.start_offset
        cut = _loss(LossKind.CUT, partition, start, before, reason, now_ms, actor)
        yield cut
        extents = Extents(partition, before)
        for reader in self._readers:
            # From the start on: a group that stands before it has fallen already, and has its entry.
            for position, group in reader.positions_between(partition.topic.name, partition.index, start, before):
                yield cut._replace(
                    kind=reader.loss_kind,
                    group=group,
                    first=position,
                    records=reader.unread(group, partition.topic.name, partition.index, before),
                    **extents.of(position)._asdict(),
                )
        yield from self._losses_of_anchored(partition, cut)

    def _losses_of_anchored(self, partition: Partition, cut: Loss) -> Iterator[Loss]:
        """Of groups that the topic names, and that have not committed yet: each deletion has its own entry."""
        named = self._broker.backlog.groups
        if not partition.topic.config.backlog.groups or not named.are_known:
            return
        for group in named.without_commit(partition):
            first = named.position(group, partition)
            if first <= cut.last:
                extent = Extents(partition, cut.last + 1).of(first)
                lost = cut._replace(kind=LossKind.SKIPPED, group=group, first=first, **extent._asdict())
                yield lost._replace(records=cut.last + 1 - first)

    # Groups

    def note_commit(self, group: str, partition: Partition, before: int | None, now: int, now_ms: int) -> None:
        """A group has committed `now`, where it stood at `before`. If that ends what it goes on missing, notes how much
        that was; if it moves to before the start, notes that it misses what was there. A failure is logged: the commit
        stands.
        """
        start = partition.start_offset
        if partition.topic.is_shown_as_internal:
            return
        if before is not None and before < start <= now:
            self._note_fallen(LossKind.RESUMED, group, partition, before, now_ms)
        elif 0 <= now < start and (before is None or now < before):
            self._note_fallen(LossKind.MISSED, group, partition, now, now_ms)

    def _note_fallen(self, kind: LossKind, group: str, partition: Partition, first: int, now_ms: int) -> None:
        loss = _loss(kind, partition, first, partition.start_offset, None, now_ms, BROKER)
        self._write_or_log([loss._replace(group=group)], now_ms)

    def note_skips(
        self,
        group: str,
        skips: Iterable[tuple[Partition, int, int]],
        reason: LossReason,
        now_ms: int,
        actor: Actor,
    ) -> None:
        """Notes that a group goes on without having committed what lies between the first and the second offset. A
        failure is logged.
        """
        losses = chain.from_iterable(
            _skip(group, partition, first, before, reason, now_ms, actor)
            for partition, first, before in skips
            if not partition.topic.is_shown_as_internal
        )
        self._write_or_log(losses, now_ms)

    def note_unfinished(
        self,
        group: str,
        ranges: Iterable[UnfinishedRange],
        reason: LossReason,
        now_ms: int,
        actor: Actor = BROKER,
    ) -> None:
        """Notes that a share group goes on without having finished some records. A failure is logged."""
        losses = (
            _loss(LossKind.SKIPPED, partition, first, before, reason, now_ms, actor)._replace(
                group=group, records=records
            )
            for partition, first, before, records in ranges
            if records and not partition.topic.is_shown_as_internal
        )
        self._write_or_log(losses, now_ms)

    def note_deleted_offsets(
        self, group: str, offsets: Iterable[tuple[str, int, int]], now_ms: int, actor: Actor
    ) -> None:
        """Notes that a client is about to delete these committed offsets of a group: of topic, partition, the offset.
        What the group had not read there is unread for good. A failure is logged.
        """
        standing = [
            (partition, offset)
            for topic, index, offset in offsets
            if (partition := self._broker.partition(topic, index)) is not None
        ]
        for partition, offset in standing:
            self.note_commit(group, partition, offset, partition.high_watermark, now_ms)  # it goes on missing no more
        skips = ((partition, offset, partition.high_watermark) for partition, offset in standing)
        self.note_skips(group, skips, LossReason.GROUP_DELETED, now_ms, actor)

    # A start after a crash

    def last_cuts(self) -> Cuts:
        """Returns the last cut of each partition that may not have been carried out. Reads the ledger backwards, to a
        segment of which all cuts were carried out: start offsets are saved of all logs at once. Raises LogError and
        UnreadableFact.
        """
        cuts: dict[tuple[str, int], int] = {}
        for log in self._topic.logs:
            for segment in list(facts_of(log))[: -1 - SEGMENTS_READ_MAX : -1]:
                found: dict[tuple[str, int], int] = {}
                for record in records_of(log, from_offset=segment.base_offset, before=segment.end_offset):
                    loss = decode(record.value or b"")
                    if loss.kind is LossKind.CUT:
                        of = loss.topic_id, loss.partition
                        found[of] = max(found.get(of, 0), loss.last + 1)
                cuts = found | cuts
                if self._are_carried_out(found):
                    break
        return cuts

    def _are_carried_out(self, cuts: Cuts) -> bool:
        """Returns whether these cuts were carried out, if one of them is of a partition that still exists."""
        ends = [(partition.start_offset, end) for partition, end in self._partitions_of(cuts)]
        return bool(ends) and all(start >= end for start, end in ends)

    def _partitions_of(self, cuts: Cuts) -> Iterator[tuple[Partition, int]]:
        for (topic_id, index), end in cuts.items():
            topic = self._broker.metadata.topics_by_id.get(bytes.fromhex(topic_id))
            partition = topic.partition(index) if topic is not None else None
            if partition is not None and partition.log is not None:
                yield partition, end

    def unfinished_cuts(self, cuts: Cuts) -> Iterator[tuple[Partition, int]]:
        """Yields partitions, and where they have to begin, whose deletion was noted and not carried out."""
        for partition, end in self._partitions_of(cuts):
            if partition.start_offset < end <= partition.high_watermark:
                yield partition, end

    def note_removed_logs(self, logs: Iterable[RemovedLog], cuts: Cuts, now_ms: int) -> None:
        """Notes logs of topics whose deletion a crash has interrupted before it was noted: which groups had not read
        them is not known any more.
        """
        losses = (
            removed.cut(now_ms)
            for removed in logs
            if cuts.get((removed.topic_id.hex(), removed.name.partition), removed.start) < removed.end
        )
        self._write_or_log(losses, now_ms)

    # The log

    def _write(self, losses: Iterable[Loss], now_ms: int) -> None:
        note = [Record(0, now_ms, key=loss.key, value=loss.encode()) for loss in losses]
        if not note:
            return
        self.noted += len(note)
        if self._unwritten and not self._has_failed:
            self._keep(note)  # behind those: `tick` tries again
            return
        try:
            self._append(note, now_ms)
        except (LogError, Refused) as error:
            if not _is_out_of_space(error):
                raise self._failed(error) from None
            self._keep(note)
            return
        self._succeeded()

    def _append(self, note: list[Record], now_ms: int) -> None:
        """Appends the records of a note, the first ones last, and removes them from the list. Raises LogError and
        Refused; then the list has what was not appended.
        """
        while note:
            first, size = len(note), 0
            while first and (size := size + size_of(note[first - 1])) <= BATCH_BYTES_MAX:
                first -= 1
            first = min(first, len(note) - 1)
            self._topic.append(note[first:], now_ms)
            del note[first:]

    def _failed(self, error: object) -> NotRecorded:
        if not self._has_failed:
            logger.error("cannot write to %s, so no messages are deleted: %s", LOSSES_TOPIC, error)
        self._has_failed = True
        return NotRecorded(error)

    def _succeeded(self) -> None:
        if self._has_failed:
            self._has_failed = False
            logger.warning("%s can be written again", LOSSES_TOPIC)

    def _keep(self, note: list[Record]) -> None:
        """Deletions make room, so they must not wait for it: the notes stay in memory until there is some. Raises
        NotRecorded if they are too many.
        """
        if sum(map(len, self._unwritten)) + len(note) > UNWRITTEN_MAX:
            raise self._failed("the disk is full, and too many notes wait for room already")
        for record in note:
            logger.error("the disk is full; not yet in %s: %s", LOSSES_TOPIC, (record.value or b"").decode())
        self._unwritten.append(note)

    def tick(self, now_ms: int) -> None:
        """Tries again to write what found the disk full, some of it with each tick."""
        try:
            for _ in range(min(NOTES_AT_ONCE, len(self._unwritten))):
                self._append(self._unwritten[0], now_ms)
                self._unwritten.popleft()
                self._succeeded()
        except (LogError, Refused) as error:
            if not _is_out_of_space(error):
                self._failed(error)

    def close(self, now_ms: int) -> None:
        """Writes the notes that are left in memory, if the disk has room by now. Each has been logged."""
        while (left := len(self._unwritten)) and not self._has_failed:
            self.tick(now_ms)
            if len(self._unwritten) == left:
                return

    def _write_or_log(self, losses: Iterable[Loss], now_ms: int) -> None:
        try:
            self._write(losses, now_ms)
        except NotRecorded as error:
            logger.error("%s", error)

    def when_flushed(self) -> Flushed | None:
        """Returns a response that is resolved once all notes are on disk, or the disk has no room for them; None if
        they are on disk.
        """
        topic = self._topic.topic
        partition = topic.peek(0) if topic is not None else None
        if partition is None or not partition.has_unflushed or partition.end_offset <= self._no_room_for:
            return None
        flushed = Flushed()
        self._waiting = [*(one for one in self._waiting if not one.is_resolved), flushed]
        self._broker.when_flushed(partition).when_resolved(flushed.resolve)
        return flushed

    def then(self, action: Callable[[], None]) -> None:
        """Does something once all notes are on disk, as far as they can be."""
        if (flushed := self.when_flushed()) is not None:
            flushed.when_resolved(lambda _: action())
        else:
            action()

    def when_noted(self, answer: Answer | DelayedResponse[Answer]) -> DelayedResponse[Answer]:
        """Returns the response to a request that has made notes: it leaves once they are on disk, too."""
        later = answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer)
        return WaitingResponse(later, self.then)

    def _found_no_room(self, log: Log) -> None:
        """A flush found the disk full. Deletions make room: they do not wait for it."""
        if log in self._topic.logs:
            self._no_room_for = log.end_offset
            waiting, self._waiting = self._waiting, []
            for flushed in waiting:
                flushed.resolve(None)


def _is_out_of_space(error: Exception) -> bool:
    return isinstance(error, StorageError) and error.cause.errno in NO_ROOM


def _skip(
    group: str, partition: Partition, first: int, before: int, reason: LossReason, now_ms: int, actor: Actor
) -> Iterator[Loss]:
    """Yields the loss of a group that goes on at `before`, if anything lies between."""
    first = max(first, partition.start_offset)
    if first < before:
        loss = _loss(LossKind.SKIPPED, partition, first, before, reason, now_ms, actor)
        yield loss._replace(group=group, exact=loss.exact and reason is LossReason.GROUP_DELETED)


def _loss(
    kind: LossKind, partition: Partition, first: int, before: int, reason: LossReason | None, now_ms: int, actor: Actor
) -> Loss:
    topic = partition.topic
    return Loss(
        kind=kind,
        topic=topic.name,
        topic_id=topic.topic_id.hex(),
        partition=partition.index,
        first=first,
        last=before - 1,
        records=before - first,
        exact=not topic.config.needs_keys,
        at=now_ms,
        reason=reason,
        client_id=actor.client_id,
        user=actor.user,
        **Extents(partition, before).of(first)._asdict(),
    )


class Extent(NamedTuple):
    """Bytes, and between which timestamps the records were written: from that of the record before them on. None if
    not known.
    """

    size: int | None = None
    oldest: int | None = None
    newest: int | None = None


class Extents:
    """The bytes and the oldest timestamp of ranges that end at one offset: one deletion may overtake many groups."""

    def __init__(self, partition: Partition, before: int) -> None:
        self._before = before
        self._segments: list[SegmentFacts] = []
        for segment in facts_of(partition.log) if partition.log is not None else ():
            if segment.base_offset >= before:
                break
            self._segments.append(segment)
        self._bases = [segment.base_offset for segment in self._segments]
        self._behind: list[tuple[float, int | None]] = [(0.0, None)]  # of all segments behind each one
        for segment in reversed(self._segments):
            self._behind.append(self._add(segment, segment.base_offset, self._behind[-1]))
        self._behind.reverse()

    def of(self, first: int) -> Extent:
        """Returns what the records from `first` on have: of a segment that holds more, a share of its bytes by offsets.
        Nothing is known where no segment that is left has them.
        """
        if not self._segments:
            return Extent()
        number = max(0, bisect_right(self._bases, first) - 1)
        size, newest = self._add(self._segments[number], first, self._behind[number + 1])
        return Extent(round(size), self._segments[number - 1].largest_timestamp if number else None, newest)

    def _add(self, segment: SegmentFacts, first: int, behind: tuple[float, int | None]) -> tuple[float, int | None]:
        size, newest = behind
        shared = min(self._before, segment.end_offset) - max(first, segment.base_offset)
        if shared <= 0:
            return behind
        if segment.largest_timestamp is not None:
            newest = max(newest or 0, segment.largest_timestamp)
        return size + segment.size * shared / (segment.end_offset - segment.base_offset), newest
