"""The log of groups, `__consumer_offsets`: appends records to it, and reads it at the start.

It has one partition unless configured otherwise, so that the commits of all groups share a flush. The first record
creates the topic.

At the start a thread reads it and keeps the last record of each key; only those are replayed, some at a time, so that
the loop goes on serving other requests.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Answer, DelayedResponse, DependentResponse, Flushed
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import OFFSETS_TOPIC, Topic
from tailrace.broker.groups.records import NotSaved, partition_of
from tailrace.broker.metadata.internal_topics import NotRead, append_records, records_of
from tailrace.broker.metadata.topic_changes import new_topic
from tailrace.log.layout.errors import LogError, StorageError, without_frames
from tailrace.log.log import Log
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.groups")


class GroupLog:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def _topic(self) -> Topic | None:
        return self._broker.topic(OFFSETS_TOPIC)

    @property
    def logs(self) -> Iterator[Log]:
        """Those of its partitions that have one."""
        for partition in self._topic.touched if self._topic is not None else ():
            if partition.log is not None:
                yield partition.log

    # Writing

    def _topic_to_append_to(self, now_ms: int) -> Topic:
        """The topic, which comes into being where there is none. Raises NotSaved."""
        if self._topic is None:
            broker = self._broker
            count = broker.configs.number("offsets.topic.num.partitions")
            segment_bytes = broker.configs.number("offsets.topic.segment.bytes")
            configs = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}  # as Kafka has them
            made = new_topic(broker.metadata, OFFSETS_TOPIC, count, configs, broker.random_bytes)
            try:
                broker.metadata_log.write(made, now_ms)
            except StorageError as error:
                raise NotSaved(str(error)) from error
        topic = self._topic
        assert topic is not None
        return topic

    def append(self, group_id: str, records: Iterable[Record], now_ms: int) -> None:
        """Afterwards they are in the log of the group as one batch, and a flush is due. Raises NotSaved."""
        topic = self._topic_to_append_to(now_ms)
        partition = topic.partition(partition_of(group_id, topic.partition_count))
        assert partition is not None
        try:
            log = self._broker.log_for_append(partition)
            append_records(log, records, now_ms)
        except (LogError, Refused) as error:
            logger.error("nothing can be saved of the group %s: %s", group_id, error)
            if partition.log is not None:
                self._broker.notice(partition.log)
            raise NotSaved(str(error)) from error
        self._broker.appended(partition, log, now_ms)
        self._broker.flushes.request(log)

    def when_safe(
        self, answer: Answer | DelayedResponse[Answer], group_ids: Iterable[str] | None
    ) -> Answer | DelayedResponse[Answer]:
        """The answer, once all that it can rest on is on disk: of the logs of these groups (None: of all), and of the
        metadata.
        """
        if isinstance(answer, DelayedResponse):
            return GroupFlushedResponse(answer, lambda: self._unflushed(group_ids))
        unflushed = self._unflushed(group_ids)
        if not unflushed:
            return answer
        return GroupFlushedResponse(DelayedResponse.of(answer), lambda: unflushed)

    def _unflushed(self, group_ids: Iterable[str] | None) -> list[Flushed]:
        """What there is to wait for, as of now."""
        topic = self._topic
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

    def read(self, replay: Callable[[Sequence[Record]], None], failed: Callable[[Exception], None]) -> None:
        """Reads all partitions in a thread; then, on the broker's own, `replay` has the last record of each key, or
        `failed` an error.
        """
        job = LastRecordsJob(list(self.logs))

        def finish() -> None:
            if job.error is not None:
                failed(job.error)
            else:
                replay(list(job.last.values()))

        self._broker.start_job(job, finish)


class GroupFlushedResponse(DependentResponse[Answer]):
    """A response that leaves when all that it depends on, at the time it is known, is on disk. If a flush fails the
    process is about to stop, and the response never leaves.
    """

    __slots__ = ("_known", "_missing", "_unflushed")

    def __init__(self, first: DelayedResponse[Answer], unflushed: Callable[[], Sequence[Flushed]]) -> None:
        super().__init__(first)
        self._unflushed = unflushed
        self._missing = 0
        first.when_resolved(self._wait)

    def _wait(self, answer: Answer) -> None:
        waits = self._unflushed()
        self._known = answer
        self._missing = len(waits)
        if not waits:
            self.resolve(answer)
        for flushed in waits:
            flushed.when_resolved(self._is_flushed)

    def _is_flushed(self, error: LogError | None) -> None:
        self._missing -= error is None
        if not self._missing:
            self.resolve(self._known)


class LastRecordsJob:
    """A job that reads logs and keeps the last record of each key; a record without a value removes its key."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self.last: dict[bytes, Record] = {}
        self.error: Exception | None = NotRead("it was not read to its end")

    def run(self) -> None:
        try:
            for log in self._logs:
                for record in records_of(log):
                    self._keep(record)
        except Exception as error:  # noqa: BLE001 - whatever it is: half of the offsets are worse than none
            self.error = without_frames(error)
        else:
            self.error = None

    def _keep(self, record: Record) -> None:
        key = record.key or b""
        if record.value is None:
            self.last.pop(key, None)
        else:
            self.last[key] = record

    def finish(self) -> None:
        pass
