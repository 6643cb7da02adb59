"""The records of the log of groups, `__consumer_offsets`, in Kafka's own formats, for its tools and brokers.

The key of a record begins with the number of its kind, which Kafka calls the version of the key; the value begins with
the version of its own encoding. A record without a value removes what its key names: one offset, or a group. Kinds 0 to
2 are described here, those of consumer and share groups in `consumer_records` and `share_records`.
"""

import struct
from typing import NamedTuple, TypeVar

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.record_kinds import KINDS, EpochChange, change_of, key_of
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode, Malformed
from tailrace.protocol.fields import ZERO_UUID, array, byte_string, int32, int64, string, uuid
from tailrace.protocol.message import message, structure, versions_of
from tailrace.records.record import Record

T = TypeVar("T")

_VERSION = struct.Struct(">h")
_INT_MIN = 1 << 31  # the absolute value of Java's smallest int, which is not an int itself


class UnreadableRecord(Exception):
    """The log of groups holds a record that this release cannot read."""


class NotSaved(Refused):
    """The log of groups refused a write. Clients retry."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)


@message(versions="0-1")
class OffsetCommitKey:
    """The key of either version, which are equal."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """`metadata` is the client's, "" if it has none; `expire_timestamp` is only set by clients that request a
    retention.
    """

    offset: int = int64()
    leader_epoch: int = int32(versions="3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(versions="1", default=-1, ignorable=True)
    topic_id: bytes = uuid(versions="4+", tag=0, ignorable=True)


@message(versions="2")
class GroupMetadataKey:
    group: str = string()


@structure
class MemberMetadata:
    """The timeouts are in ms; `subscription` and `assignment` are in the clients' encoding."""

    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", null="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(versions="1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A group after its last rebalance; without members it has neither protocol nor leader."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(null="0+")
    leader: str | None = string(null="0+")
    current_state_timestamp: int = int64(versions="2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class OffsetCommitted(NamedTuple):
    group: str
    topic: str
    partition: int
    value: OffsetCommitValue


class OffsetRemoved(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupSaved(NamedTuple):
    group: str
    value: GroupMetadataValue


class GroupRemoved(NamedTuple):
    group: str


class OfAnotherKind(NamedTuple):
    """A record of another kind of group that Kafka has (streams groups), which is ignored here."""

    kind: int


Change = OffsetCommitted | OffsetRemoved | GroupSaved | GroupRemoved | EpochChange
OffsetRecord = Change | OfAnotherKind

_OFFSET_KINDS = versions_of(OffsetCommitKey)
_GROUP_KINDS = versions_of(GroupMetadataKey)
_GROUP_VALUE_VERSION = 3
_EPOCH_VALUE_VERSION = 0


def encode_offset(group: str, topic: str, partition: int, value: OffsetCommitValue | None, timestamp: int) -> Record:
    """Encodes a committed offset as a record without an offset of its own; None removes the commit."""
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    version = 0 if value is None else _offset_value_version(value)
    return _record(key, _OFFSET_KINDS.last, value, version, timestamp)


def encode_group(group: str, value: GroupMetadataValue | None, timestamp: int) -> Record:
    """Encodes a group as a record without an offset of its own; None removes the group."""
    return _record(GroupMetadataKey(group=group), _GROUP_KINDS.last, value, _GROUP_VALUE_VERSION, timestamp)


def encode(change: Change, timestamp: int) -> Record:
    """Encodes a change as a record without an offset of its own."""
    match change:
        case OffsetCommitted(group, topic, partition, value):
            return encode_offset(group, topic, partition, value, timestamp)
        case OffsetRemoved(group, topic, partition):
            return encode_offset(group, topic, partition, None, timestamp)
        case GroupSaved(group, value):
            return encode_group(group, value, timestamp)
        case GroupRemoved(group):
            return encode_group(group, None, timestamp)
        case _:
            kind, key = key_of(change)
            return _record(key, kind, change.value, _EPOCH_VALUE_VERSION, timestamp)


def decode(record: Record) -> OffsetRecord:
    """Decodes a record. Raises UnreadableRecord for one that this release cannot read."""
    try:
        return _decode(record.key or b"", record.value)
    except (struct.error, Malformed) as error:
        raise UnreadableRecord(f"cannot read record {record.offset} of the log of groups: {error}") from error


def partition_of(group: str, count: int) -> int:
    """Returns which of `count` partitions has the records of a group: as in Kafka, by Java's hash of its name."""
    if count == 1:
        return 0
    units = group.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    magnitude = min(hashed, (1 << 32) - hashed)  # absolute value of these bits as a signed int
    return 0 if magnitude == _INT_MIN else magnitude % count


def _offset_value_version(value: OffsetCommitValue) -> int:
    """The oldest version that can hold the value: Kafka brokers from before topic ids can read one without."""
    if value.expire_timestamp != -1:
        return 1  # the only version with an expiry; leader epoch and topic id are lost, as in Kafka
    return 3 if value.topic_id == ZERO_UUID else 4


def _record(key: object, kind: int, value: object | None, version: int, timestamp: int) -> Record:
    encoded = None if value is None else _VERSION.pack(version) + codec.encode(value, version)
    return Record(0, timestamp, _VERSION.pack(kind) + codec.encode(key, kind), encoded)


def _decode(key: bytes, value: bytes | None) -> OffsetRecord:
    (kind,) = _VERSION.unpack_from(key)
    if kind in _OFFSET_KINDS:
        of = _read(OffsetCommitKey, key)
        if value is None:
            return OffsetRemoved(of.group, of.topic, of.partition)
        return OffsetCommitted(of.group, of.topic, of.partition, _read(OffsetCommitValue, value))
    if kind in _GROUP_KINDS:
        group = _read(GroupMetadataKey, key).group
        return GroupRemoved(group) if value is None else GroupSaved(group, _read(GroupMetadataValue, value))
    if (described := KINDS.get(kind)) is not None:
        saved = None if value is None else _read(described.value, value)
        return change_of(kind, _read(described.key, key), saved)
    if kind < 0:
        raise Malformed(f"an unknown key kind {kind}")
    return OfAnotherKind(kind)


def _read(message: type[T], data: bytes) -> T:
    """Decodes the message that follows its version number."""
    (version,) = _VERSION.unpack_from(data)
    return codec.decode(message, version, data, _VERSION.size)
