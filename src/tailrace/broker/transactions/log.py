"""The transaction log, `__transaction_state`: appends records to it, and reads it at the start.

It has one partition unless configured otherwise, so that the transactions of all producers share a flush. The first
record creates the topic.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.delayed import Flushed
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import TRANSACTIONS_TOPIC
from tailrace.broker.groups.records import NotSaved, partition_of
from tailrace.broker.metadata.internal_topics import InternalTopic, LastRecordsJob
from tailrace.broker.transactions import records
from tailrace.broker.transactions.records import TransactionSaved
from tailrace.log.directory.admission import COORDINATED_VERSION
from tailrace.log.layout.errors import LogError
from tailrace.log.log import Log
from tailrace.records.record import Record

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.transactions")


class TransactionLog:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        number = broker.configs.number
        self._topic = InternalTopic(
            broker,
            TRANSACTIONS_TOPIC,
            number("transaction.state.log.num.partitions"),
            lambda: {
                "cleanup.policy": "compact",
                "segment.bytes": str(number("transaction.state.log.segment.bytes")),
            },
        )

    @property
    def logs(self) -> Iterator[Log]:
        """Yields the logs of its partitions, without those that were never appended to."""
        return self._topic.logs

    def append(self, saved: TransactionSaved, now_ms: int) -> None:
        """Appends a record, and requests a flush. Raises NotSaved."""
        try:
            if self._topic.topic is None:
                self._broker.directory.require_format(COORDINATED_VERSION)
            count = self._topic.create(now_ms).partition_count
            record = records.encode(saved, now_ms)
            self._topic.append([record], now_ms, partition_of(saved.transactional_id, count))
        except (LogError, Refused) as error:
            logger.error("cannot write to the transaction log: %s", error)
            raise NotSaved(str(error)) from error

    def unflushed(self, transactional_id: str | None = None) -> list[Flushed]:
        """Returns what has to be waited for until all that is known of the id, or of all ids, is on disk, as of now."""
        broker, topic = self._broker, self._topic.topic
        if topic is None:
            return []
        count = topic.partition_count
        indexes = range(count) if transactional_id is None else [partition_of(transactional_id, count)]
        waits = [
            broker.when_flushed(partition)
            for index in indexes
            if (partition := topic.peek(index)) is not None and partition.has_unflushed
        ]
        return waits if broker.metadata_log.is_settled else [*waits, broker.metadata_log.when_settled()]

    def leader_epoch(self, transactional_id: str) -> int:
        """Returns the leader epoch of the id's partition, which its markers carry as the epoch of the coordinator."""
        topic = self._topic.topic
        partition = topic.partition(partition_of(transactional_id, topic.partition_count)) if topic else None
        return self._broker.leader_epoch(partition)

    def read(self, replay: Callable[[Sequence[Record]], None], failed: Callable[[Exception], None]) -> None:
        """Reads all partitions in a thread; then, on the broker's own, calls `replay` with the last record of each key,
        or `failed` with an error.
        """
        job = LastRecordsJob(list(self.logs))

        def finish() -> None:
            if job.error is not None:
                failed(job.error)
            else:
                replay(list(job.last.values()))

        self._broker.start_job(job, finish)
