"""The state log of share groups, `__share_group_state`: appends records to it, reads it at the start, and cuts it.

It has one partition, so that all share groups share a flush. The first record creates the topic. Unlike the logs of
groups and transactions it is not compacted: a state is a snapshot and the updates behind it. The records before the
last snapshots of all states are deleted (`cut`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Answer, DelayedResponse, FlushDependentResponse, Flushed
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import SHARE_STATE_TOPIC
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.metadata.internal_topics import InternalTopic, NotRead, read_batches
from tailrace.broker.queues.state_log.records import ShareChange, decode, encode
from tailrace.log.directory.admission import QUEUES_VERSION
from tailrace.log.layout.errors import LogError, without_frames
from tailrace.log.log import Log
from tailrace.log.retention import Reason
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.queues")

SEGMENT_BYTES = 16 << 20  # a cut frees whole segments
KEPT_UNTIL_CUT = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(SEGMENT_BYTES),
}

Replay = Callable[[ShareChange, Record], None]
"""Gets each change, and its record."""


class ShareStateLog:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topic = InternalTopic(broker, SHARE_STATE_TOPIC, 1, lambda: KEPT_UNTIL_CUT)

    @property
    def is_foreign(self) -> bool:
        """Whether a user has a topic of this name, from before the name was reserved."""
        return self._topic.topic is not None and not self._topic.topic.is_internal

    @property
    def _partition(self) -> Partition | None:
        topic = self._topic.topic
        return None if topic is None or not topic.is_internal else topic.partition(0)

    @property
    def log(self) -> Log | None:
        """None until the first record."""
        return self._partition.log if self._partition is not None else None

    @property
    def unavailable(self) -> LogError | None:
        """The reason if the log should be there but cannot be opened, or has lost records."""
        if self._partition is None or self._partition.unavailable is not None:
            return self._partition.unavailable if self._partition is not None else None
        return _damage_of(self._partition.log) if self._partition.log is not None else None

    # Writing

    def append(self, changes: Sequence[ShareChange], now_ms: int) -> Sequence[Record]:
        """Appends records as one batch, and requests a flush. Returns them, with their offsets. Raises NotSaved."""
        records = [encode(change, now_ms) for change in changes]
        try:
            if self._topic.topic is None:
                self._broker.directory.require_format(QUEUES_VERSION)
            appended = self._topic.append(records, now_ms)
        except (LogError, Refused) as error:
            logger.error("cannot write to the state log of share groups: %s", error)
            raise NotSaved(str(error)) from error
        return [record._replace(offset=offset) for offset, record in enumerate(records, appended.base_offset)]

    @property
    def is_flushed(self) -> bool:
        partition = self._partition
        return partition is None or not partition.has_unflushed

    def when_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once all that it may depend on is on disk."""
        if isinstance(answer, DelayedResponse):
            return FlushDependentResponse(answer, self.unflushed)
        unflushed = self.unflushed()
        return FlushDependentResponse(DelayedResponse.of(answer), lambda: unflushed) if unflushed else answer

    def unflushed(self) -> list[Flushed]:
        """Returns what has to be waited for, as of now."""
        broker, partition = self._broker, self._partition
        if partition is None or self.is_flushed:
            return []
        waits = [broker.when_flushed(partition)]
        return waits if broker.metadata_log.is_settled else [*waits, broker.metadata_log.when_settled()]

    def cut(self, before: int, now_ms: int) -> None:
        """Deletes the records before an offset: no state needs them. All behind it that states need is on disk."""
        partition, log = self._partition, self.log
        if partition is None or log is None or not log.start_offset < before <= log.high_watermark:
            return
        self._broker.retention.delete(partition, before, Reason.START, now_ms)
        self._broker.checkpointer.when_offsets_saved()

    # Reading

    def read(self, replay: Replay, done: Callable[[Exception | None], None]) -> None:
        """Reads the log in a thread, which calls `replay` for each record; then, on the broker's own, calls `done`, if
        need be with an error.
        """
        log = self.log
        assert log is not None
        job = ReadStateJob(log, replay)
        self._broker.start_job(job, lambda: done(job.error))


class ReadStateJob:
    """A job that reads the whole log. What it replays into must not be used until it is done."""

    def __init__(self, log: Log, replay: Replay) -> None:
        self._log = log
        self._replay = replay
        self.error: Exception | None = NotRead("the log was not read to its end")

    def run(self) -> None:
        try:
            for segment in self._log.sealed_segments:
                self._log.find_missing_around(segment)
            if (damage := _damage_of(self._log)) is not None:
                raise damage
            for found in read_batches(self._log):
                for record in found.records:
                    change = decode(record)
                    if change is not None:
                        self._replay(change, record)
        except Exception as error:  # noqa: BLE001 - any error: a part of the state is worse than none
            self.error = without_frames(error)
        else:
            self.error = None

    def finish(self) -> None:
        pass


def _damage_of(log: Log) -> NotRead | None:
    found = [str(one) for one in log.damage if one.last_offset >= log.start_offset]
    return NotRead("; ".join(found)) if found else None
