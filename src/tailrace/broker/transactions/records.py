"""The records of the transaction log, `__transaction_state`, in Kafka's own format, for its tools and brokers.

A record holds all of one transactional id: the producer, the state, and the partitions of the transaction. It replaces
the one before it; a record without a value removes the id. Written in version 1 of the value, and read in 0, too.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.broker.transactions.state import State, Transaction
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol import codec
from tailrace.protocol.errors import Malformed
from tailrace.protocol.fields import array, int8, int16, int32, int64, string
from tailrace.protocol.message import message, structure
from tailrace.records.record import Record

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0
_VALUE_VERSION = 1


class UnreadableTransaction(Exception):
    """The transaction log holds a record that this release cannot read."""


@message(versions="0")
class TransactionLogKey:
    transactional_id: str = string()


@structure
class PartitionsOfTopic:
    topic: str = string()
    partition_ids: list[int] = array(int32)


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsOfTopic] | None = array(PartitionsOfTopic, null="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(versions="1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int = int64(versions="1+", tag=1, default=-1, ignorable=True)
    client_transaction_version: int = int16(versions="1+", tag=2, default=0, ignorable=True)
    next_producer_epoch: int = int16(versions="1+", tag=3, default=-1, ignorable=True)


class TransactionSaved(NamedTuple):
    """What a record says; without a transaction, that the id has expired."""

    transactional_id: str
    transaction: Transaction | None


def encode(saved: TransactionSaved, timestamp: int) -> Record:
    """Encodes a record without an offset of its own."""
    key = _VERSION.pack(_KEY_VERSION) + codec.encode(
        TransactionLogKey(transactional_id=saved.transactional_id), _KEY_VERSION
    )
    value = None
    if saved.transaction is not None:
        value = _VERSION.pack(_VALUE_VERSION) + codec.encode(_value_of(saved.transaction), _VALUE_VERSION)
    return Record(0, timestamp, key, value)


def _value_of(transaction: Transaction) -> TransactionLogValue:
    is_empty = transaction.state is State.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsOfTopic]:
    """Returns the partitions by topic, in order."""
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return [PartitionsOfTopic(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


def decode(record: Record) -> TransactionSaved | None:
    """Decodes a record; None for one of another kind. Raises UnreadableTransaction."""
    try:
        return _decode(record.key or b"", record.value)
    except (struct.error, Malformed, ValueError) as error:
        raise UnreadableTransaction(f"cannot read record {record.offset} of the transaction log: {error}") from error


def _decode(key: bytes, data: bytes | None) -> TransactionSaved | None:
    (kind,) = _VERSION.unpack_from(key)
    if kind != _KEY_VERSION:
        return None
    transactional_id = codec.decode(TransactionLogKey, kind, key, _VERSION.size).transactional_id
    if data is None:
        return TransactionSaved(transactional_id, None)
    (version,) = _VERSION.unpack_from(data)
    value = codec.decode(TransactionLogValue, version, data, _VERSION.size)
    partitions = frozenset(
        TopicPartition(one.topic, index) for one in value.transaction_partitions or () for index in one.partition_ids
    )
    transaction = Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        partitions=partitions,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        version=value.client_transaction_version,
    )
    return TransactionSaved(transactional_id, None if transaction.state is State.DEAD else transaction)
