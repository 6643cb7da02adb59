"""The bytes that consumers of the classic protocol put into JoinGroup and SyncGroup: subscriptions and assignments.

The broker leaves them alone, except where a group changes its protocol. `subscription` finds the topics in any version
of a subscription.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tailrace.protocol import codec
from tailrace.protocol.errors import Malformed
from tailrace.protocol.fields import array, byte_string, int32, string
from tailrace.protocol.message import message, structure, versions_of

T = TypeVar("T")

_VERSION = struct.Struct(">h")


@structure
class NamedPartitions:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = array(string)
    user_data: bytes | None = byte_string(null="0+", default=None)
    owned_partitions: list[NamedPartitions] = array(NamedPartitions, versions="1+", ignorable=True)
    generation_id: int = int32(versions="2+", default=-1, ignorable=True)
    rack_id: str | None = string(versions="3+", null="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[NamedPartitions] = array(NamedPartitions)
    user_data: bytes | None = byte_string(null="0+", default=None)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises Malformed."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Reads an assignment; no bytes are an empty one. Raises Malformed."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def write_assignment(assigned: Mapping[str, Sequence[int]], subscription: bytes) -> bytes:
    """Encodes an assignment in the version of the member's subscription."""
    version = _version_of(ConsumerProtocolAssignment, subscription)
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            NamedPartitions(topic=topic, partitions=list(partitions)) for topic, partitions in assigned.items()
        ]
    )
    return _VERSION.pack(version) + codec.encode(value, version)


def _read(kind: type[T], data: bytes) -> T:
    """Fields that newer versions have added are passed over."""
    return codec.decode(kind, _version_of(kind, data), data, _VERSION.size, more_may_follow=True)


def _version_of(kind: type[T], data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise Malformed("the version is missing")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise Malformed(f"there is no version {version}")
    newest: int = versions_of(kind).last
    return newest if version > newest else int(version)
