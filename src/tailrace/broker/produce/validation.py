"""Checks of a batch that a client wants to append, by its header alone, in Kafka's order.

Nothing here looks inside a batch: its first 61 bytes hold all that must be checked. Compacted topics, which take no
record without a key, are the exception (`key_checks`).
"""

from tailrace.broker.configs.registry import TopicConfig
from tailrace.broker.core.api import Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.protocol.errors import ErrorCode
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptBatch

ZSTD_FROM = 7  # clients of older versions of Produce may not know the codec, and neither may readers of that age

_CODECS = frozenset(map(int, Codec))

Records = bytes | bytearray | memoryview


def header_of(records: Records | None) -> BatchHeader | None:
    """The header of a batch that is refused, if it can be read."""
    try:
        return batch.read_header(records) if records else None
    except CorruptBatch:
        return None


def check_batch(partition: Partition, records: Records | None, call: Call) -> BatchHeader:
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
        raise too_large(len(records), topic)
    _check_attributes(header, call.version)
    _check_timestamps(header, partition, call.now_ms)
    return header


def is_usual(header: BatchHeader, size: int, config: TopicConfig, version: int, now_ms: int) -> bool:
    """Whether the header of a batch of `size` bytes satisfies all rules of `check_batch`, in one expression: the common
    case is fast.
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


def too_large(size: int, topic: Topic) -> Refused:
    limit = topic.config.max_message_bytes
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, where max.message.bytes is {limit}")


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
    if header.producer_id != batch.NO_PRODUCER and not is_producer(header):
        raise Refused(ErrorCode.INVALID_RECORD, "an idempotent producer needs an id, an epoch and a sequence")


def is_producer(header: BatchHeader) -> bool:
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
