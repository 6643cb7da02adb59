"""The log of groups, `__consumer_offsets`: appends records to it, and reads it at the start.

It has one partition unless configured otherwise, so that the commits of all groups share a flush. The first record
creates the topic.

At the start a thread reads it and keeps the last record of each key; only those are replayed, some at a time, so that
the loop can serve other requests.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.delayed import Answer, DelayedResponse, FlushDependentResponse, Flushed
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups.pending_offsets import GroupTransaction
from tailrace.broker.groups.records import NotSaved, partition_of
from tailrace.broker.metadata.internal_topics import AppendedBatch, InternalTopic, LastRecordsJob
from tailrace.log.layout.errors import InvalidProducerEpoch, LogError
from tailrace.log.log import Log
from tailrace.records.batch import NO_PRODUCER
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.groups")


class UndecidedOffset(NamedTuple):
    """A record of a transaction that was not decided when the log was read."""

    transaction: GroupTransaction
    record: Record


class GroupLog:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        number = broker.configs.number
        self._topic = InternalTopic(
            broker,
            OFFSETS_TOPIC,
            number("offsets.topic.num.partitions"),
            lambda: {"cleanup.policy": "compact", "segment.bytes": str(number("offsets.topic.segment.bytes"))},
        )

    @property
    def logs(self) -> Iterator[Log]:
        """Yields the logs of its partitions, without those that were never appended to."""
        return self._topic.logs

    # Writing

    def append(
        self,
        group_id: str,
        records: Iterable[Record],
        now_ms: int,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> AppendedBatch:
        """Appends the records to the log of the group as one batch, of a transaction if there is a producer; and
        requests a flush. Raises NotSaved, and Refused for a producer that is fenced.
        """
        try:
            index = partition_of(group_id, self._topic.create(now_ms).partition_count)
            return self._topic.append(records, now_ms, index, producer_id=producer_id, producer_epoch=producer_epoch)
        except (LogError, Refused) as error:
            raise _refusal(f"the log of group {group_id}", error) from error

    def append_marker(self, partition_index: int, marker: bytearray, now_ms: int) -> bool:
        """Appends a marker, and requests a flush. Returns False if the partition has no log, which needs none. Raises
        what `append` raises.
        """
        topic = self._topic.topic
        partition = topic.peek(partition_index) if topic is not None else None
        if partition is None or (partition.log is None and partition.unavailable is None):
            return False
        try:
            self._topic.append_batch(marker, now_ms, partition_index)
        except (LogError, Refused) as error:
            raise _refusal(str(partition.name), error) from error
        return True

    def partition_of(self, group_id: str, now_ms: int) -> int:
        """Returns which partition has the records of a group. Creates the topic if there is none. Raises NotSaved."""
        try:
            return partition_of(group_id, self._topic.create(now_ms).partition_count)
        except LogError as error:
            raise _refusal(OFFSETS_TOPIC, error) from error

    def when_safe(
        self, answer: Answer | DelayedResponse[Answer], group_ids: Iterable[str] | None
    ) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once all that it may depend on is on disk: the logs of these groups (None: of all), and
        the metadata.
        """
        if isinstance(answer, DelayedResponse):
            return FlushDependentResponse(answer, lambda: self._unflushed(group_ids))
        unflushed = self._unflushed(group_ids)
        if not unflushed:
            return answer
        return FlushDependentResponse(DelayedResponse.of(answer), lambda: unflushed)

    def _unflushed(self, group_ids: Iterable[str] | None) -> list[Flushed]:
        """Returns what has to be waited for, as of now."""
        topic = self._topic.topic
        if topic is None:
            return []
        broker = self._broker
        count = topic.partition_count
        indexes = range(count) if group_ids is None else {partition_of(group_id, count) for group_id in group_ids}
        waits = [
            broker.when_flushed(partition)
            for index in indexes
            if (partition := topic.peek(index)) is not None and partition.has_unflushed
        ]
        return waits if broker.metadata_log.is_settled else [*waits, broker.metadata_log.when_settled()]

    # Reading

    def read(
        self,
        replay: Callable[[Sequence[UndecidedOffset], Sequence[Record]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Reads all partitions in a thread; then, on the broker's own, calls `replay` with the records of transactions
        that are not decided, and with the last record of each key; or `failed` with an error.
        """
        job = LastRecordsJob(list(self.logs))

        def finish() -> None:
            if job.error is not None:
                failed(job.error)
                return
            undecided = [
                UndecidedOffset(GroupTransaction(partition.index, of.producer_id), record)
                for of in job.undecided
                if (partition := self._broker.partition_of(of.log)) is not None
                for record in of.records
            ]
            replay(undecided, list(job.last.values()))

        self._broker.start_job(job, finish)


def _refusal(name: str, error: LogError | Refused) -> Refused:
    """Returns the error to raise for a write that failed: NotSaved, unless the producer is fenced."""
    if isinstance(error, InvalidProducerEpoch):
        return Refused(code_of(error), str(error))
    logger.error("cannot write to %s: %s", name, error)
    return NotSaved(str(error))
