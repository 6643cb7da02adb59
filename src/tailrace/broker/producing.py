"""Writing for clients: what a Produce must satisfy by its header alone, the append, and who waits for the disk.

The order of the checks is Kafka's. Nothing looks inside a batch: 61 bytes say what must be known. The exception are
compacted topics, which take no record without a key.
"""

from typing import TYPE_CHECKING

from tailrace.broker.errors import Refused, code_of
from tailrace.broker.partition import Partition
from tailrace.broker.requests import Call
from tailrace.broker.waiting import Later
from tailrace.log.errors import LogError
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

DECODED_RECORDS_MAX = 50_000  # of a batch for a compacted topic, a microsecond or so each
DECODED_BYTES_MAX = 16 << 20  # of a batch for a compacted topic: it is looked into on the broker's own thread
ZSTD_FROM = 7  # clients of older versions of Produce may not know the codec, and neither may readers of that age

Records = bytes | bytearray | memoryview
Unflushed = list[tuple[Log, int, PartitionProduceResponse]]
"""What was appended: the log, the offset behind it, and the answer that says so."""


def append(
    partition: Partition, records: Records | None, call: Call, broker: "Broker", answer: PartitionProduceResponse
) -> tuple[Log, int] | None:
    """Appends one partition's batch; afterwards `answer` says where it is, or why not. Returns the log and the offset
    that must be flushed for it to be safe.
    """
    try:
        header = _check(partition, records, call)
        if broker.space.is_low:
            raise broker.space.refusal()
        log = broker.log_for_append(partition)
        assert isinstance(records, bytearray | memoryview), "offsets are stamped in place"
        appended = log.append(records, call.now_ms)
    except (Refused, LogError, CorruptBatch) as error:
        refuse(answer, code_of(error), str(error))
        if isinstance(error, KeysMissing):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="a key is missing")
                for index in error.indexes
            ]
        return None
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time
    answer.log_start_offset = log.start_offset
    if not appended.is_duplicate:
        broker.appended(partition, log, call.now_ms)
        broker.counters.produced(partition.topic.name, header.record_count, len(records))
    return log, appended.last_offset + 1


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = answer.log_start_offset = -1


def _check(partition: Partition, records: Records | None, call: Call) -> BatchHeader:
    """The batch's header. Raises Refused for what a client may not append here, CorruptBatch for what is no batch."""
    topic = partition.topic
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal: only the broker appends to it")
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "there is no batch to append")
    header = batch.read_header(records)
    if header.magic != batch.MAGIC:
        raise Refused(ErrorCode.INVALID_RECORD, f"a batch of format {header.magic}; we take {batch.MAGIC}")
    if header.length < batch.LENGTH_MIN:
        raise CorruptBatch(f"a batch of {header.size} bytes is none")
    if header.size < len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a Produce has one batch for each partition")
    if len(records) > topic.config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(records)} bytes, where max.message.bytes is {topic.config.max_message_bytes}",
        )
    _check_attributes(header, call.version)
    _check_timestamps(header, partition, call.now_ms)
    if topic.config.needs_keys:
        _require_keys(records, header.record_count)
    return header


class KeysMissing(Refused):
    """Records without a key, for a topic that is compacted by key; `indexes` says which of the batch."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key")
        self.indexes = indexes


def _require_keys(records: Records, record_count: int) -> None:
    """The one look inside a batch: compaction would lose what has no key."""
    if record_count > DECODED_RECORDS_MAX:  # clients split a batch that is too large, and try again
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch for a compacted topic has at most {DECODED_RECORDS_MAX} records"
        )
    batch.check(records)
    decoded = decode_records(records, limit=DECODED_BYTES_MAX)
    if missing := [index for index, record in enumerate(decoded) if record.key is None]:
        raise KeysMissing(missing)


def _check_attributes(header: BatchHeader, version: int) -> None:
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "a client cannot write control batches")
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "the log-append time is the broker's to set")
    if header.is_transactional:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "there is no open transaction for this batch")
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
            refuse(answer, ErrorCode.REQUEST_TIMED_OUT, "the disk has not taken it in time")
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
