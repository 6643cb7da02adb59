"""Writing for clients: what a Produce must satisfy by its header alone, the append, and who waits for what.

The order of the checks is Kafka's. Nothing looks inside a batch: 61 bytes say what must be known. The exception are
compacted topics, which take no record without a key. What has to be recompressed is appended when its turn comes
(`recompressing`); its answer waits for that first, and then for the disk.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.broker.configs.registry import TopicConfig
from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import Later
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.produce.recompression import Conversion
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import Codec, DecompressionBudget
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger(__name__)

DECODED_RECORDS_MAX = 50_000  # of a batch for a compacted topic, a microsecond or so each
DECODED_BYTES_MAX = 16 << 20  # of a batch for a compacted topic: it is looked into on the broker's own thread
ZSTD_FROM = 7  # clients of older versions of Produce may not know the codec, and neither may readers of that age

NOT_APPENDED = (Refused, LogError, CorruptBatch)  # what is wrong with a batch, or a log, and not with us

_CODECS = frozenset(map(int, Codec))
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT, "the disk has not taken it in time"

Records = bytes | bytearray | memoryview
Unflushed = list[tuple[Log, int, PartitionProduceResponse]]
"""What was appended: the log, the offset behind it, and the answer that says so."""


def append(
    partition: Partition,
    records: Records | None,
    call: Call,
    broker: "Broker",
    answer: PartitionProduceResponse,
    in_line: "list[InLine]",
    budget: DecompressionBudget,
) -> tuple[Log, int] | None:
    """Appends one partition's batch; afterwards `answer` says where it is, or why not. Returns the log and the offset
    that must be flushed for it to be safe. Where it has to wait for its turn, it is put into `in_line` instead.
    `budget` is shared by all batches of the request.
    """
    try:
        header = _check(partition, records, call, budget)
        if broker.space.is_low:
            raise broker.space.refusal()
        log = broker.log_for_append(partition)
        assert isinstance(records, bytearray | memoryview), "offsets are stamped in place"
        target = partition.topic.config.target
        if target is not None and target.codec == header.codec:
            target = None
        if target is not None or partition.has_queue:
            waiting = InLine(partition, log, header, call, broker, answer)
            broker.recompressor.enqueue(partition, records, target, budget, waiting.write)
            in_line.append(waiting)
            return None
        return _write(partition, log, records, header.record_count, call.now_ms, broker, answer)
    except NOT_APPENDED as error:
        _refuse_for(answer, error)
        remember_refusal(partition.name, header_of(records), code_of(error), call, broker)
        return None


def remember_refusal(
    name: TopicPartition, header: BatchHeader | None, code: ErrorCode, call: Call, broker: "Broker"
) -> None:
    """Keeps batches of an idempotent producer that are in flight from overtaking one that its client will send again:
    see `log/state/refused_batches`.
    """
    if header is None or not _is_producer(header) or not code.retriable:
        return
    partition = broker.partition(name.topic, name.partition)
    if partition is not None and partition.log is not None and partition.log.producers.touch(header.producer_id):
        return  # its log knows which sequence is due
    broker.refused_batches.remember(
        name, header.producer_id, header.producer_epoch, header.base_sequence, call.steady_ms
    )


def header_of(records: Records | None) -> BatchHeader | None:
    """The header of a batch that is refused, if it can be read."""
    try:
        return batch.read_header(records) if records else None
    except CorruptBatch:
        return None


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
        broker.counters.produced(partition.topic.name, record_count, len(records))
    return log, appended.last_offset + 1


def _refuse_for(answer: PartitionProduceResponse, error: Exception) -> None:
    refuse(answer, code_of(error), str(error))
    if isinstance(error, KeysMissing):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="a key is missing")
            for index in error.indexes
        ]


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = answer.log_start_offset = -1


def _check(partition: Partition, records: Records | None, call: Call, budget: DecompressionBudget) -> BatchHeader:
    """The batch's header. Raises Refused for what a client may not append here, CorruptBatch for what is no batch."""
    topic = partition.topic
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal: only the broker appends to it")
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "there is no batch to append")
    header = batch.read_header(records)
    config = topic.config
    if config.takes_batches_as_they_are and is_usual(header, len(records), config, call.version, call.now_ms):
        return header
    if header.magic != batch.MAGIC:
        raise Refused(ErrorCode.INVALID_RECORD, f"a batch of format {header.magic}; we take {batch.MAGIC}")
    if header.length < batch.LENGTH_MIN:
        raise CorruptBatch(f"a batch of {header.size} bytes is none")
    if header.size < len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a Produce has one batch for each partition")
    if len(records) > topic.config.max_message_bytes:
        raise _too_large(len(records), topic)
    _check_attributes(header, call.version)
    _check_timestamps(header, partition, call.now_ms)
    if topic.config.needs_keys:
        _require_keys(records, header.record_count, budget)
    return header


def is_usual(header: BatchHeader, size: int, config: TopicConfig, version: int, now_ms: int) -> bool:
    """Whether there is nothing to say against a batch of so many bytes, by what its header says: all rules of `_check`
    in one expression, for the many that keep them.
    """
    _, length, _, magic, _, attributes, _, base_time, max_time, producer_id, epoch, sequence, _ = header
    return (
        magic == batch.MAGIC
        and length >= batch.LENGTH_MIN
        and length + batch.LENGTH_END == size <= config.max_message_bytes
        and attributes in _CODECS  # and nothing else is said
        and (version >= ZSTD_FROM or attributes != Codec.ZSTD)
        and max_time - now_ms <= config.timestamp_after_max_ms
        and (base_time < 0 or now_ms - base_time <= config.timestamp_before_max_ms)
        and (producer_id == batch.NO_PRODUCER or (producer_id >= 0 and epoch >= 0 and sequence >= 0))
    )


def _too_large(size: int, topic: Topic) -> Refused:
    limit = topic.config.max_message_bytes
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, where max.message.bytes is {limit}")


class KeysMissing(Refused):
    """Records without a key, for a topic that is compacted by key; `indexes` says which of the batch."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key")
        self.indexes = indexes


def _require_keys(records: Records, record_count: int, budget: DecompressionBudget) -> None:
    """The one look inside a batch: compaction would lose what has no key."""
    if record_count > DECODED_RECORDS_MAX:  # clients split a batch that is too large, and try again
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch for a compacted topic has at most {DECODED_RECORDS_MAX} records"
        )
    batch.check(records)
    decoded = decode_records(records, limit=DECODED_BYTES_MAX, budget=budget)
    if missing := [index for index, record in enumerate(decoded) if record.key is None]:
        raise KeysMissing(missing)


def _check_attributes(header: BatchHeader, version: int) -> None:
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "a client cannot write control batches")
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "the log-append time is the broker's to set")
    if header.is_transactional:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "there is no open transaction for this batch")
    if header.codec not in _CODECS:  # nobody could read it
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {header.codec}")
    if header.codec == Codec.ZSTD and version < ZSTD_FROM:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_FROM} or later")
    if header.producer_id != batch.NO_PRODUCER and not _is_producer(header):
        raise Refused(ErrorCode.INVALID_RECORD, "an idempotent producer needs an id, an epoch and a sequence")


def _is_producer(header: BatchHeader) -> bool:
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0


def _check_timestamps(header: BatchHeader, partition: Partition, now_ms: int) -> None:
    config = partition.topic.config
    if config.log.log_append_time:
        return  # they are about to be replaced
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead of the broker's clock",
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > config.timestamp_before_max_ms:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms behind the broker's clock",
        )


class InLine:
    """A batch that waits for its turn, and is appended then. `written` is what `append` returns of others."""

    __slots__ = ("_broker", "_call", "_header", "_log", "_partition", "answer", "tell", "written")

    def __init__(
        self,
        partition: Partition,
        log: Log,
        header: BatchHeader,
        call: Call,
        broker: "Broker",
        answer: PartitionProduceResponse,
    ) -> None:
        self.answer = answer
        self.written: tuple[Log, int] | None = None
        self.tell: Callable[[InLine], None] | None = None  # when it is appended, or is not
        self._partition = partition
        self._log = log
        self._header = header  # as it came
        self._call = call
        self._broker = broker

    def write(self, conversion: Conversion) -> None:
        """It is its turn."""
        try:
            records = conversion.outcome()
            topic = self._partition.topic
            if len(records) > topic.config.max_message_bytes:  # again, as Kafka does: it may have become larger
                raise _too_large(len(records), topic)
            count, now_ms = self._header.record_count, self._call.now_ms
            self.written = _write(self._partition, self._log, records, count, now_ms, self._broker, self.answer)
        except Exception as error:
            if not isinstance(error, NOT_APPENDED):
                logger.exception("a batch for %s could not be appended", self._partition.name)
            _refuse_for(self.answer, error)
            remember_refusal(self._partition.name, self._header, code_of(error), self._call, self._broker)
        if self.tell is not None:
            self.tell(self)


class Deferred(Later[Any]):
    """The answer to a Produce of which something waits for its turn: once all is appended, it is what `finish` says,
    which may wait for the disk.
    """

    __slots__ = ("_finish", "_is_expired", "_next", "_unflushed", "_waiting")

    def __init__(self, in_line: list[InLine], unflushed: Unflushed, finish: Callable[[], Any], timeout_ms: int) -> None:
        super().__init__(max(timeout_ms, 0))
        self._waiting = len(in_line)
        self._unflushed = unflushed
        self._finish = finish
        self._next: Later[Any] | None = None
        self._is_expired = False
        for one in in_line:
            one.tell = self._written

    def _written(self, one: InLine) -> None:
        if one.written is not None:
            self._unflushed.append((*one.written, one.answer))
        self._waiting -= 1
        if self._waiting:
            return
        answer = self._finish()
        if not isinstance(answer, Later):
            self.resolve(answer)
            return
        self._next = answer
        answer.when_resolved(self.resolve)
        if self._is_expired:
            answer.expire()

    def expire(self) -> None:
        """Who waits for the disk is told that it took too long; those in line are on their way, and have their turn."""
        self._is_expired = True
        if self._next is not None:
            self._next.expire()


class Acknowledgement(Later[ProduceResponse]):
    """An answer that leaves when all that it speaks of is on disk."""

    __slots__ = ("_response", "_waiting")

    def __init__(self, response: ProduceResponse, unflushed: Unflushed, timeout_ms: int, broker: "Broker") -> None:
        super().__init__(max(timeout_ms, 0))
        self._response = response
        self._waiting = {id(answer): answer for _, _, answer in unflushed}
        for log, offset, answer in unflushed:
            broker.flushes.when_flushed(log, offset, _Notify(self, answer))

    def flushed(self, answer: PartitionProduceResponse, error: LogError | None) -> None:
        if self._waiting.pop(id(answer), None) is None:
            return  # its time was up before
        if error is not None:
            refuse(answer, code_of(error), str(error))
        if not self._waiting:
            self.resolve(self._response)

    def expire(self) -> None:
        """The client gets its timeout. What was written stays, and may become safe yet: a retry is a duplicate then."""
        for answer in self._waiting.values():
            refuse(answer, *TIMED_OUT)
        self._waiting.clear()
        self.resolve(self._response)


class _Notify:
    """Tells an acknowledgement that one partition is on disk."""

    __slots__ = ("_acknowledgement", "_answer")

    def __init__(self, acknowledgement: Acknowledgement, answer: PartitionProduceResponse) -> None:
        self._acknowledgement = acknowledgement
        self._answer = answer

    def __call__(self, error: LogError | None) -> None:
        self._acknowledgement.flushed(self._answer, error)
