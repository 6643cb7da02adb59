"""Checks of a batch that a client wants to append, by its header alone, in Kafka's order.

Nothing here looks inside a batch: its first 61 bytes hold all that must be checked. The exception are compacted topics,
whose records need keys (`key_checks`).
"""

from tailrace.broker.configs.registry import TopicConfig
from tailrace.broker.core.api import Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.protocol.errors import ErrorCode
from tailrace.records import batch
from tailrace.records.batch import BatchHeader
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptBatch

ZSTD_FROM = 7  # clients with an older Produce may not know the codec, nor may consumers of that age

CODECS = frozenset(map(int, Codec))  # attributes of a batch that has no others
TRANSACTIONAL_CODECS = frozenset(codec | batch.TRANSACTIONAL for codec in CODECS)

Records = bytes | bytearray | memoryview


def header_of(records: Records | None) -> BatchHeader | None:
    """Returns the header of a refused batch, if it can be read."""
    try:
        return batch.read_header(records) if records else None
    except CorruptBatch:
        return None


def check_batch(partition: Partition, records: Records | None, call: Call) -> BatchHeader:
    """Returns the batch's header. Raises Refused for a batch that a client may not append here, and CorruptBatch."""
    topic = partition.topic
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal: only the broker appends to it")
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "the request has no batch for this partition")
    header, size = batch.read_header(records), len(records)
    if not is_usual(header, size, topic.config, call.version, call.now_ms):
        check_header(header, size, topic.config, call.version, call.now_ms)
    return header


def check_header(header: BatchHeader, size: int, config: TopicConfig, version: int, now_ms: int) -> None:
    """Checks the header of a batch of `size` bytes by all rules, in Kafka's order. Raises what `check_batch` raises."""
    if header.magic != batch.MAGIC:
        raise Refused(ErrorCode.INVALID_RECORD, f"the batch has format {header.magic}; only {batch.MAGIC} is supported")
    if header.length < batch.LENGTH_MIN:
        raise CorruptBatch(f"a batch cannot have {header.size} bytes")
    if header.size < size:
        raise Refused(ErrorCode.INVALID_RECORD, "a Produce must have exactly one batch per partition")
    if size > config.max_message_bytes:
        raise too_large(size, config)
    _check_attributes(header, version)
    _check_timestamps(header, config, now_ms)


def is_usual(
    header: BatchHeader,
    size: int,
    config: TopicConfig,
    version: int,
    now_ms: int,
    attributes_expected: frozenset[int] = CODECS,
) -> bool:
    """Checks all rules of `check_header` in one expression: the common case is fast. Returns False for some headers
    that satisfy them, but never True for one that does not: `test_validation` shows that.
    """
    _, length, _, magic, _, attributes, _, base_time, max_time, producer_id, epoch, sequence, _ = header
    return (
        magic == batch.MAGIC
        and length >= batch.LENGTH_MIN
        and length + batch.LENGTH_END == size <= config.max_message_bytes
        and attributes in attributes_expected
        and (version >= ZSTD_FROM or attributes & batch.CODEC_MASK != Codec.ZSTD)
        and max_time - now_ms <= config.timestamp_after_max_ms
        and (base_time < 0 or now_ms - base_time <= config.timestamp_before_max_ms)
        and (
            (producer_id >= 0 and epoch >= 0 and sequence >= 0)
            or (producer_id == batch.NO_PRODUCER and attributes < batch.TRANSACTIONAL)
        )
    )


def too_large(size: int, config: TopicConfig) -> Refused:
    limit = config.max_message_bytes
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes; max.message.bytes is {limit}")


def _check_attributes(header: BatchHeader, version: int) -> None:
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "a client cannot write control batches")
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the log-append time")
    if header.codec not in CODECS:  # no consumer could read it
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    if header.codec == Codec.ZSTD and version < ZSTD_FROM:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_FROM} or later")
    if (header.producer_id != batch.NO_PRODUCER or header.is_transactional) and not is_producer(header):
        raise Refused(ErrorCode.INVALID_RECORD, "an idempotent producer needs an id, an epoch and a sequence")


def is_producer(header: BatchHeader) -> bool:
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if config.log.log_append_time:
        return  # the timestamps are about to be replaced
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
