"""Appends the batches of a Produce, and holds its response back until they are on disk.

append          checks one partition's batch (`validation`) and appends it
QueuedAppend    a batch that waits in a queue (`recompression`), and is appended when its turn comes
QueuedProduce   the response to a request with such batches: first it waits for all of them
DelayedProduce  the response to `acks=all`: it leaves when all batches are on disk
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.produce.key_checks import KeysMissing, ProduceBudget, check_keys
from tailrace.broker.produce.recompression import Conversion
from tailrace.broker.produce.validation import Records, check_batch, header_of, is_producer, too_large
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse
from tailrace.records.batch import BatchHeader
from tailrace.records.errors import CorruptBatch

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.produce")

NOT_APPENDED = (Refused, LogError, CorruptBatch)  # errors of a batch or a log, not of the broker

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT, "the batch was not on disk in time"

UnflushedAppends = list[tuple[Log, int, PartitionProduceResponse]]
"""An append: the log, the end offset that must be flushed, and the partition's part of the response."""


def append(
    partition: Partition,
    records: Records | None,
    call: Call,
    broker: "Broker",
    answer: PartitionProduceResponse,
    queued: "list[QueuedAppend]",
    budget: ProduceBudget,
) -> tuple[Log, int] | None:
    """Appends one partition's batch, and fills `answer` with its offset or an error. Returns the log and the offset
    that must be flushed for the batch to be safe. A batch that has to wait is added to `queued` instead. `budget` is
    shared by all batches of the request.
    """
    try:
        header = check_batch(partition, records, call)
        if header.is_transactional:
            budget.transaction.admit(partition, header)
        if broker.disk_reserve.is_low:
            raise broker.disk_reserve.refusal()
        log = broker.log_for_append(partition)
        assert isinstance(records, bytearray | memoryview), "offsets are stamped in place"
        config = partition.topic.config
        if config.backlog.limits_producers:
            may_refuse = budget.may_refuse and not log.producers.continues_transaction(header)
            budget.admit(broker.backlog.gates.admit(partition, log, call, may_refuse=may_refuse))
        keys_unchecked = config.needs_keys and check_keys(records, header, budget)
        target = config.target
        if target is not None and target.codec == header.codec:
            target = None
        if target is not None or keys_unchecked or partition.has_queue:
            waiting = QueuedAppend(partition, log, header, call, broker, answer, budget)
            broker.recompressor.enqueue(partition, records, target, budget, waiting.write, keys_unchecked)
            queued.append(waiting)
            return None
        if header.is_transactional:
            budget.transaction.check_sequence(log, header)
        return _write(partition, log, records, header.record_count, call.now_ms, broker, answer)
    except NOT_APPENDED as error:
        _refuse_for(answer, error, budget)
        remember_refusal(partition.name, header_of(records), code_of(error), call, broker)
        return None


def remember_refusal(
    name: TopicPartition, header: BatchHeader | None, code: ErrorCode, call: Call, broker: "Broker"
) -> None:
    """Keeps batches of an idempotent producer that are in flight from overtaking one that its client will send again:
    see `log/state/refused_batches`.
    """
    if header is None or not is_producer(header) or not code.retriable:
        return
    partition = broker.partition(name.topic, name.partition)
    if partition is not None and partition.log is not None and partition.log.producers.touch(header.producer_id):
        return  # its log knows the expected sequence
    broker.refused_batches.remember(
        name, header.producer_id, header.producer_epoch, header.base_sequence, call.steady_ms
    )


def _write(
    partition: Partition,
    log: Log,
    records: bytearray | memoryview,
    record_count: int,
    now_ms: int,
    broker: "Broker",
    answer: PartitionProduceResponse,
) -> tuple[Log, int]:
    """Raises LogError, CorruptBatch."""
    appended = log.append(records, now_ms)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time
    answer.log_start_offset = log.start_offset
    if not appended.is_duplicate:
        broker.appended(partition, log, now_ms)
        if partition.topic.config.backlog.limits_producers:
            gates, next_offset = broker.backlog.gates, appended.last_offset + 1
            gates.appended(partition, appended.base_offset, next_offset, len(records), now_ms)
        broker.counters.produced(partition.topic.name, record_count, len(records))
    return log, appended.last_offset + 1


def _refuse_for(answer: PartitionProduceResponse, error: Exception, budget: ProduceBudget) -> None:
    refuse(answer, code_of(error), str(error))
    if isinstance(error, KeysMissing):
        listed = error.indexes[: budget.record_errors]
        budget.record_errors -= len(listed)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="a key is missing")
            for index in listed
        ]


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = answer.log_start_offset = -1


class QueuedAppend:
    """A batch that is appended when its turn comes. `written` is the result that `append` returns for other batches."""

    __slots__ = ("_broker", "_budget", "_call", "_header", "_log", "_partition", "answer", "tell", "written")

    def __init__(
        self,
        partition: Partition,
        log: Log,
        header: BatchHeader,
        call: Call,
        broker: "Broker",
        answer: PartitionProduceResponse,
        budget: ProduceBudget,
    ) -> None:
        self.answer = answer
        self.written: tuple[Log, int] | None = None
        self.tell: Callable[[QueuedAppend], None] | None = None  # called when it is appended, or refused
        self._partition = partition
        self._log = log
        self._header = header  # as received
        self._call = call
        self._broker = broker
        self._budget = budget

    def write(self, conversion: Conversion) -> None:
        """Appends the batch: its turn has come."""
        try:
            records = conversion.outcome()
            if self._header.is_transactional:  # again: its transaction may have ended meanwhile
                self._budget.transaction.admit(self._partition, self._header)
                self._budget.transaction.check_sequence(self._log, self._header)
            config = self._partition.topic.config
            if len(records) > config.max_message_bytes:  # checked again, as in Kafka: it may have grown
                raise too_large(len(records), config)
            count, now_ms = self._header.record_count, self._call.now_ms
            self.written = _write(self._partition, self._log, records, count, now_ms, self._broker, self.answer)
        except Exception as error:
            if not isinstance(error, NOT_APPENDED):
                logger.exception("unexpected error while appending a queued batch to %s", self._partition.name)
            _refuse_for(self.answer, error, self._budget)
            remember_refusal(self._partition.name, self._header, code_of(error), self._call, self._broker)
        if self.tell is not None:
            self.tell(self)


class QueuedProduce(DelayedResponse[Any]):
    """The response to a Produce with queued batches. Once all are appended, `finish` makes the response, which may wait
    for the disk.
    """

    __slots__ = ("_finish", "_is_expired", "_next", "_unflushed", "_waiting")

    def __init__(
        self, queued: list[QueuedAppend], unflushed: UnflushedAppends, finish: Callable[[], Any], timeout_ms: int
    ) -> None:
        super().__init__(max(timeout_ms, 0))
        self._waiting = len(queued)
        self._unflushed = unflushed
        self._finish = finish
        self._next: DelayedResponse[Any] | None = None
        self._is_expired = False
        for one in queued:
            one.tell = self._written

    def _written(self, one: QueuedAppend) -> None:
        if one.written is not None:
            self._unflushed.append((*one.written, one.answer))
        self._waiting -= 1
        if self._waiting:
            return
        answer = self._finish()
        if not isinstance(answer, DelayedResponse):
            self.resolve(answer)
            return
        self._next = answer
        answer.when_resolved(self.resolve)
        if self._is_expired:
            answer.expire()

    def expire(self) -> None:
        """Refuses what waits for the disk with a timeout; queued batches are still appended when their turn comes."""
        self._is_expired = True
        if self._next is not None:
            self._next.expire()


class DelayedProduce(DelayedResponse[ProduceResponse]):
    """A response that is sent when all batches that it acknowledges are on disk."""

    __slots__ = ("_response", "_waiting")

    def __init__(
        self, response: ProduceResponse, unflushed: UnflushedAppends, timeout_ms: int, broker: "Broker"
    ) -> None:
        super().__init__(max(timeout_ms, 0))
        self._response = response
        self._waiting = {id(answer): answer for _, _, answer in unflushed}
        for log, offset, answer in unflushed:
            broker.flushes.when_flushed(log, offset, _Notify(self, answer))

    def flushed(self, answer: PartitionProduceResponse, error: LogError | None) -> None:
        if self._waiting.pop(id(answer), None) is None:
            return  # it has timed out before
        if error is not None:
            refuse(answer, code_of(error), str(error))
        if not self._waiting:
            self.resolve(self._response)

    def expire(self) -> None:
        """Responds with a timeout. The written batches may still become safe: a retry is then a duplicate."""
        for answer in self._waiting.values():
            refuse(answer, *TIMED_OUT)
        self._waiting.clear()
        self.resolve(self._response)


class _Notify:
    """Notifies a DelayedProduce that one partition is on disk."""

    __slots__ = ("_acknowledgement", "_answer")

    def __init__(self, acknowledgement: DelayedProduce, answer: PartitionProduceResponse) -> None:
        self._acknowledgement = acknowledgement
        self._answer = answer

    def __call__(self, error: LogError | None) -> None:
        self._acknowledgement.flushed(self._answer, error)
