"""The records of the metadata log: one class for each kind of change, and its encoding.

The key of a record holds its kind and the version of its encoding; the value is the message as our codec encodes it. A
kind never changes its meaning, and a new field comes with a new version, so that older logs can be read.
"""

import struct

from tailrace.protocol import codec
from tailrace.protocol.errors import Malformed
from tailrace.protocol.fields import array, boolean, float64, int8, int32, int64, string, uuid
from tailrace.protocol.message import message, structure
from tailrace.records.record import Record

_KEY = struct.Struct(">hh")


class UnknownRecord(Exception):
    """The metadata log holds a record that this release does not know: a newer release wrote it."""


@message(versions="0", flexible="0+")
class ClusterCreated:
    """The first record: the permanent id of the cluster."""

    cluster_id: str = string()


@message(versions="0", flexible="0+")
class StartedUncleanly:
    """The previous process did not stop cleanly. `count` is the leader epoch of everything appended from now on."""

    count: int = int32()


@message(versions="0", flexible="0+")
class TopicCreated:
    """`is_broker_owned`: created by the broker for itself. Records of older releases do not say so."""

    topic_id: bytes = uuid()
    name: str = string()
    partition_count: int = int32()
    is_broker_owned: bool = boolean(tag=0)


@message(versions="0", flexible="0+")
class PartitionsAdded:
    topic_id: bytes = uuid()
    partition_count: int = int32()


@message(versions="0", flexible="0+")
class TopicDeleted:
    topic_id: bytes = uuid()
    name: str = string()


@message(versions="0", flexible="0+")
class ConfigChanged:
    """A config of a topic (2), of brokers (4) or of a group (32), by Kafka's numbers. None restores the default."""

    resource_type: int = int8()
    resource_name: str = string()
    key: str = string()
    value: str | None = string(null="0+")


@message(versions="0", flexible="0+")
class ProducerIdsReserved:
    """Every producer id below `next_producer_id` may have been allocated."""

    next_producer_id: int = int64()


@structure
class QuotaEntityPart:
    """A user, a client id or an address, by Kafka's names for these types. None is the default of its type."""

    kind: str = string()
    name: str | None = string(null="0+")


@message(versions="0", flexible="0+")
class ClientQuotaChanged:
    """A quota of an entity is set, or removed."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    key: str = string()
    value: float = float64()
    is_removed: bool = boolean()


@structure
class AnchoredPosition:
    partition: int = int32()
    offset: int = int64()


@message(versions="0", flexible="0+")
class BacklogAnchored:
    """Where a group of `tailrace.backlog.groups` stands while it has no commit. A partition that is not listed keeps
    its position, or has 0.
    """

    topic_id: bytes = uuid()
    group: str = string()
    at_ms: int = int64()
    positions: list[AnchoredPosition] = array(AnchoredPosition)


MetadataRecord = (
    ClusterCreated
    | StartedUncleanly
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsReserved
    | ClientQuotaChanged
    | BacklogAnchored
)

_KINDS: dict[int, type[MetadataRecord]] = {
    0: ClusterCreated,
    1: StartedUncleanly,
    2: TopicCreated,
    3: PartitionsAdded,
    4: TopicDeleted,
    5: ConfigChanged,
    6: ProducerIdsReserved,
    7: ClientQuotaChanged,
    8: BacklogAnchored,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_VERSION = 0


def encode(change: MetadataRecord, timestamp: int) -> Record:
    """Encodes a change as a record without an offset; the batch assigns one."""
    key = _KEY.pack(_NUMBERS[type(change)], _VERSION)
    return Record(0, timestamp, key, codec.encode(change, _VERSION))


def decode(record: Record) -> MetadataRecord:
    """Decodes a record. Raises UnknownRecord if this release cannot read it."""
    try:
        kind, version = _KEY.unpack(record.key or b"")
        return codec.decode(_KINDS[kind], version, record.value or b"")
    except (struct.error, KeyError, Malformed, ValueError) as error:
        raise UnknownRecord(
            f"this release cannot read record {record.offset} of the metadata log: {error!r}"
        ) from error
