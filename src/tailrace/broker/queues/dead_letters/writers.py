"""Writes the records that share groups give up to their dead-letter topics, each of them once.

    given up    the state log has the record as Archiving, and where the dead-letter topic ended at that time
    on disk     a job reads the records from their log, and makes dead letters of them
    appended    to the dead-letter topic, to the partition with the number of theirs
    on disk     the state log has them as Archived

A crash leaves records as Archiving. The next start searches the dead-letter topic, from where it ended when they were
given up, for those that are written already.

At most tailrace.dlq.rate records of a group are written in a second. While there is no dead-letter topic that takes
them, or no room on the disk, they wait, and in the end their queue does, too (`SharePartition.next_available`).
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.delayed import Flushed, Pause
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.groups.timers import Timer
from tailrace.broker.queues.dead_letters.jobs import CopyJob, SearchJob
from tailrace.broker.queues.dead_letters.letters import DeadLetter, Origin, reason_of
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import (
    DeadLetterPosition,
    Decision,
    Ended,
    OffsetRange,
    StateUpdate,
)
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.broker.quotas.client_quotas import Bucket
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.queues.coordinator import QueueCoordinator

logger = logging.getLogger("tailrace.broker.queues")

DEAD_LETTERS = "dead letters"  # a kind of deadline
LETTERS_MAX = 100  # in one batch
RETRY_MS = 5_000
READS_MAX = 60  # that fail, before a dead letter has no copy of its record
REFILL_MS = 100  # while the rate is used up

Wait = Callable[[Callable[..., None]], object]
"""Calls what it is given when something has happened."""
Work = Generator[Wait, LogError | None, None]
"""Yields what it waits for, and gets what came of it."""


def go_on(work: Work, result: LogError | None = None) -> None:
    try:
        wait = work.send(result)
    except StopIteration:
        return
    wait(lambda result=None: go_on(work, result))


class Target(NamedTuple):
    """A partition of a dead-letter topic."""

    partition: Partition

    @property
    def position(self) -> DeadLetterPosition:
        partition = self.partition
        return DeadLetterPosition(partition.topic.topic_id, partition.index, partition.end_offset)


class DeadLetters:
    def __init__(self, queues: "QueueCoordinator", broker: "Broker") -> None:
        self._queues = queues
        self._broker = broker
        self._writers: dict[str, GroupWriter] = {}
        self._paused: dict[Timer, Callable[..., None]] = {}
        self._numbers = count()

    def stamped(self, queue: QueuePartition, decision: Decision) -> StateUpdate | None:
        """Returns the update of a decision, with where the dead-letter topic ends if records are given up by it and no
        others wait.
        """
        update, state = decision.update, queue.state
        if update is None or state is None or state.archiving or not decision.dead_letters:
            return update
        try:
            target = self.target_of(queue)
        except Refused:
            return update
        return update._replace(dead_letters=target.position) if target is not None else update

    def add(self, queue: QueuePartition, decision: Decision) -> None:
        """Has the records written that a decision, which was replayed, gives up."""
        if letters := decision.dead_letters:
            self._writer(queue.key.group).add(queue, letters)

    def resume(self, queue: QueuePartition) -> None:
        """Has the records written that the last run of the broker left, except those that it wrote."""
        if queue.state is not None and queue.state.archiving:
            go_on(self._resume(queue, queue.state))

    def _resume(self, queue: QueuePartition, state: SharePartition) -> Work:
        attempts_max, group = state.settings.attempts_max, queue.key.group
        left = [
            Ended(first, last, count, reason_of(count, attempts_max), is_dead_letter=True)
            for first, last, count in state.archiving_in()
        ]
        position = state.dead_letters
        log = self._log_at(position)
        if position is not None and log is not None:
            search = SearchJob(log, position.offset, origin_of(queue))
            yield partial(self._broker.start_job, search)
            found = [OffsetRange(offset, offset) for offset in sorted(search.offsets)]
            while not self.archive(queue, state, found):
                yield self.pause(group, RETRY_MS)
        if not queue.is_gone and queue.state is state:
            self._writer(group).add(queue, [still for one in left for still in _still_archiving(state, one)])

    def _log_at(self, position: DeadLetterPosition | None) -> Log | None:
        topic = self._broker.metadata.topics_by_id.get(position.topic_id) if position is not None else None
        partition = topic.partition(position.partition) if topic is not None and position is not None else None
        return partition.log if partition is not None else None

    def pause(self, group: str, ms: int) -> Wait:
        def wait(wake: Callable[..., None]) -> None:
            timer = Timer(group, DEAD_LETTERS, str(next(self._numbers)))
            self._paused[timer] = wake
            self._queues.timers.set(timer, ms)

        return wait

    def due(self, timer: Timer) -> None:
        """A deadline of this kind is due: a pause is over."""
        self._paused.pop(timer)()

    def _writer(self, group: str) -> "GroupWriter":
        writer = self._writers.get(group)
        if writer is None:
            rate = self._broker.configs.number("tailrace.dlq.rate")
            for gone in self._writers.keys() - self._queues.groups.keys():
                del self._writers[gone]
            writer = self._writers[group] = GroupWriter(self, self._queues, self._broker, group, rate)
        return writer

    # What writers need

    def target_of(self, queue: QueuePartition) -> Target | None:
        """Returns where dead letters go; None if the group has no dead-letter topic. Raises Refused for a topic that
        does not take them.
        """
        name = self._queues.settings_of(queue.key.group).dead_letter_topic
        if name is None:
            return None
        topic = self._broker.topic(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}. Create it")
        if topic.is_shown_as_internal or not topic.config.queue.takes_dead_letters:
            setting = "errors.deadletterqueue.group.enable"
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} takes no dead letters. Set its {setting}")
        if topic is queue.partition.topic:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the topic that they come from. Name another")
        partition = topic.partition(queue.partition.index % topic.partition_count)
        assert partition is not None
        return Target(partition)

    def archive(
        self,
        queue: QueuePartition,
        state: SharePartition,
        ranges: Iterable[OffsetRange],
        position: DeadLetterPosition | None = None,
    ) -> bool:
        """Notes that records are in the dead-letter topic, and that all others will come to lie behind `position`.
        Returns False if that could not be noted.
        """
        if queue.is_gone or queue.state is not state:
            return True
        decision = state.dead_letters_written(ranges)
        if decision.update is None:
            return True
        before = state.archiving
        try:
            self._queues.write([(queue, Decision(decision.update._replace(dead_letters=position)))])
        except NotSaved:
            return False
        queue.outcomes.dead_lettered += before - state.archiving
        return True


class Waiting:
    """The records of a share partition that are to be written."""

    __slots__ = ("failed_reads", "letters", "state")

    def __init__(self, state: SharePartition) -> None:
        self.state = state
        self.failed_reads = 0  # one after the other
        self.letters: deque[tuple[Ended, int]] = deque()  # and when they were given up

    def take(self, records_max: int) -> list[DeadLetter]:
        taken: list[DeadLetter] = []
        while self.letters and len(taken) < records_max:
            ended, given_up_ms = self.letters.popleft()
            last = min(ended.last, ended.first + records_max - len(taken) - 1)
            taken += (
                DeadLetter(offset, ended.delivery_count, ended.reason, given_up_ms)
                for offset in range(ended.first, last + 1)
            )
            if last < ended.last:
                self.letters.appendleft((ended._replace(first=last + 1), given_up_ms))
        return taken

    def put_back(self, letters: Iterable[DeadLetter]) -> None:
        self.letters.extendleft(
            (Ended(one.offset, one.offset, one.delivery_count, one.reason, is_dead_letter=True), one.given_up_ms)
            for one in reversed(list(letters))
        )


class GroupWriter:
    """Writes the dead letters of a group, one batch after the other."""

    def __init__(
        self, owner: DeadLetters, queues: "QueueCoordinator", broker: "Broker", group: str, rate: float
    ) -> None:
        self._owner = owner
        self._queues = queues
        self._broker = broker
        self._group = group
        self._bucket = Bucket(rate, 1.0, queues.steady_ms / 1000)
        self._waiting: dict[QueuePartition, Waiting] = {}
        self._is_working = False
        self._complaint: str | None = None

    def add(self, queue: QueuePartition, letters: Iterable[Ended]) -> None:
        assert queue.state is not None
        waiting = self._waiting.get(queue)
        if waiting is None or waiting.state is not queue.state:
            waiting = self._waiting[queue] = Waiting(queue.state)
        now_ms = self._queues.now_ms
        waiting.letters.extend((ended, now_ms) for ended in letters)
        if not self._is_working:
            self._is_working = True
            self._broker.start_job(Pause(), partial(go_on, self._work()))

    def _pause(self, ms: int) -> Wait:
        return self._owner.pause(self._group, ms)

    def _work(self) -> Work:
        while (queue := self._next()) is not None:
            waiting = self._waiting[queue]
            try:
                target = self._owner.target_of(queue)
                if target is None:
                    self._end_without_topic(queue, waiting)
                    continue
                if self._bucket.fill(self._queues.steady_ms / 1000) < 1:
                    yield self._pause(max(REFILL_MS, round(1000 / self._bucket.rate)))
                    continue
                yield from self._write(queue, waiting, target)
            except (LogError, Refused) as error:
                self._complain(error)
                yield self._pause(RETRY_MS)
        self._is_working = False

    def _next(self) -> QueuePartition | None:
        """Returns a share partition with letters, each in its turn."""
        for queue, waiting in list(self._waiting.items()):
            del self._waiting[queue]
            if waiting.letters and not queue.is_gone and queue.state is waiting.state:
                self._waiting[queue] = waiting
                return queue
        return None

    def _write(self, queue: QueuePartition, waiting: Waiting, target: Target) -> Work:
        """Writes a batch. Raises LogError and Refused, and then nothing was written."""
        if queue.partition.unavailable is not None:
            raise queue.partition.unavailable.again()
        self._set_position(queue, waiting.state, target)
        for unflushed in self._queues.log.unflushed():
            if (yield from flushed(unflushed)) is not None:
                return  # the process is about to stop
        letters = waiting.take(min(LETTERS_MAX, int(self._bucket.fill(self._queues.steady_ms / 1000))))
        job = self._copy_job(queue, waiting, letters)
        yield partial(self._broker.start_job, job)
        waiting.put_back(letters[job.taken :])
        if job.error is not None and not job.taken:
            waiting.failed_reads += 1
            raise job.error
        waiting.failed_reads = 0
        written = letters[: job.taken]
        if queue.is_gone or queue.state is not waiting.state:
            return
        try:
            self._append(target, job.batch)
        except (LogError, Refused):
            waiting.put_back(written)
            raise
        self._bucket.take(len(written), self._queues.steady_ms / 1000)
        if (error := (yield from flushed(self._broker.when_flushed(target.partition)))) is not None:
            waiting.put_back(written)  # the topic was deleted
            raise error
        self._complaint = None
        ranges = [OffsetRange(one.offset, one.offset) for one in sorted(written)]
        while not self._owner.archive(queue, waiting.state, ranges, target.position):
            yield self._pause(RETRY_MS)

    def _copy_job(self, queue: QueuePartition, waiting: Waiting, letters: Sequence[DeadLetter]) -> CopyJob:
        return CopyJob(
            queue.partition.log,
            letters,
            origin_of(queue),
            copies=self._queues.settings_of(self._group).copies_dead_letters,
            must_copy=waiting.failed_reads < READS_MAX,
            now_ms=self._queues.now_ms,
        )

    def _set_position(self, queue: QueuePartition, state: SharePartition, target: Target) -> None:
        """Notes where the dead-letter topic ends, if that is unknown, or of another topic. Raises NotSaved."""
        known = state.dead_letters
        if known is None or known[:2] != target.position[:2]:
            self._queues.write([(queue, Decision(StateUpdate(dead_letters=target.position)))])

    def _append(self, target: Target, encoded: bytearray) -> None:
        """Raises LogError and Refused."""
        broker, partition = self._broker, target.partition
        if broker.topic(partition.topic.name) is not partition.topic:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic.name} was deleted. Create it")
        if broker.disk_reserve.is_low:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk reserve is used up. Free space, or add a disk")
        log = broker.log_for_append(partition)
        try:
            log.append(encoded, self._queues.now_ms)
        except LogError:
            broker.notice(log)
            raise
        broker.appended(partition, log, self._queues.now_ms)
        broker.flushes.request(log)

    def _end_without_topic(self, queue: QueuePartition, waiting: Waiting) -> None:
        """The group has no dead-letter topic any more: its records end without one. Raises NotSaved."""
        letters = waiting.take(LETTERS_MAX)
        ended = [Ended(one.offset, one.offset, one.delivery_count, one.reason) for one in letters]
        decision = waiting.state.dead_letters_written(OffsetRange(one.first, one.last) for one in sorted(ended))
        try:
            self._queues.write([(queue, decision._replace(ended=ended))])
        except NotSaved:
            waiting.put_back(letters)
            raise

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("cannot write dead letters of the share group %s, which wait: %s", self._group, error)


def flushed(waited_for: Flushed) -> Generator[Wait, LogError | None, LogError | None]:
    """Waits for a flush. Returns the error that prevents it."""
    return (yield waited_for.when_resolved)


def _still_archiving(state: SharePartition, before: Ended) -> Iterator[Ended]:
    for first, last, _ in state.archiving_in(before.first, before.last):
        yield before._replace(first=first, last=last)


def origin_of(queue: QueuePartition) -> Origin:
    return Origin(queue.key.group, queue.partition.topic.name, queue.partition.index)
