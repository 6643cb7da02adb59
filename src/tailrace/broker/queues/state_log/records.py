"""The records of the state log of share groups, `__share_group_state`, in Kafka's own format.

    snapshot   key kind 0: all of one share partition; without a value, that its state is deleted
    update     key kind 1: what has changed since; ranges that it does not name are as before

A state may be too large for one record. Then its snapshot is *partial*: a record that has only its beginning, followed
by updates with the rest of it, among others. It counts once an update with its snapshot epoch comes; until then updates
carry the epoch of the snapshot before. Only a tagged field, which Kafka skips, says that a snapshot is partial. Three
others are the `DeadLetterPosition` of the share partition.
"""

import struct
from typing import NamedTuple

from tailrace.broker.queues.names import ShareKey
from tailrace.protocol import codec
from tailrace.protocol.errors import Malformed
from tailrace.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.records.record import Record

_VERSION = struct.Struct(">h")
_SNAPSHOT, _UPDATE = 0, 1
_VALUE_VERSION = 0

UNKNOWN_OFFSET = -1  # of dead letters: there are none
UNKNOWN_START = -1  # of a snapshot: not resolved yet; of an update: unchanged
RANGE_BYTES = 20  # of one range in a record


class UnreadableShareState(Exception):
    """The state log of share groups holds a record that this release cannot read."""


@message(versions="0-1")
class ShareStateKey:
    """The key of either kind, which are equal."""

    group: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@structure
class StateBatch:
    """Records from `first_offset` to `last_offset`, both inclusive, in one state."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)
    delivery_complete_count: int = int32(tag=0, default=-1)
    is_partial: bool = boolean(tag=10_000)
    dead_letter_topic_id: bytes = uuid(tag=10_001)
    dead_letter_partition: int = int32(tag=10_002)
    dead_letter_offset: int = int64(tag=10_003, default=UNKNOWN_OFFSET)


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64(default=UNKNOWN_START)
    state_batches: list[StateBatch] = array(StateBatch)
    delivery_complete_count: int = int32(tag=0, default=-1)
    dead_letter_topic_id: bytes = uuid(tag=10_001)
    dead_letter_partition: int = int32(tag=10_002)
    dead_letter_offset: int = int64(tag=10_003, default=UNKNOWN_OFFSET)


class ShareSnapshotted(NamedTuple):
    """A snapshot; without a value, the state is deleted."""

    key: ShareKey
    value: ShareSnapshotValue | None


class ShareUpdated(NamedTuple):
    key: ShareKey
    value: ShareUpdateValue


ShareChange = ShareSnapshotted | ShareUpdated


def encode(change: ShareChange, timestamp: int) -> Record:
    """Encodes a change as a record without an offset of its own."""
    kind = _SNAPSHOT if isinstance(change, ShareSnapshotted) else _UPDATE
    group, topic_id, partition = change.key
    key = codec.encode(ShareStateKey(group=group, topic_id=topic_id, partition=partition), kind)
    value = change.value
    encoded = None if value is None else _VERSION.pack(_VALUE_VERSION) + codec.encode(value, _VALUE_VERSION)
    return Record(0, timestamp, _VERSION.pack(kind) + key, encoded)


def decode(record: Record) -> ShareChange | None:
    """Decodes a record; None for one of another kind. Raises UnreadableShareState."""
    try:
        return _decode(record.key or b"", record.value)
    except (struct.error, Malformed) as error:
        raise UnreadableShareState(
            f"cannot read record {record.offset} of the state log of share groups: {error}"
        ) from error


def _decode(key: bytes, data: bytes | None) -> ShareChange | None:
    (kind,) = _VERSION.unpack_from(key)
    if kind not in (_SNAPSHOT, _UPDATE):
        if kind < 0:
            raise Malformed(f"an unknown key kind {kind}")
        return None
    of = codec.decode(ShareStateKey, kind, key, _VERSION.size)
    named = ShareKey(of.group, of.topic_id, of.partition)
    if data is None:
        return ShareSnapshotted(named, None) if kind == _SNAPSHOT else None
    (version,) = _VERSION.unpack_from(data)
    if kind == _SNAPSHOT:
        return ShareSnapshotted(named, codec.decode(ShareSnapshotValue, version, data, _VERSION.size))
    return ShareUpdated(named, codec.decode(ShareUpdateValue, version, data, _VERSION.size))
