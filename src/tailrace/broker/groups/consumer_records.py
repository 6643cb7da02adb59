"""The records of consumer groups (KIP-848) in the log of groups: kinds 3, 5 to 8 and 16, in Kafka's formats.

    3   the epoch of a group: it grows with every change that needs a new assignment
    5   a member: who it is, and what it subscribes to
    6   the epoch of the target assignment
    7   the target assignment of a member
    8   the current assignment of a member, its epoch and its state
    16  the topics that a pattern (regular expression) matches

Lists of topics and partitions may come in any order. A change without a value removes what its key names.
"""

from typing import NamedTuple

from tailrace.protocol.fields import array, byte_string, int8, int32, int64, nested, string, uuid
from tailrace.protocol.message import message, structure


@message(versions="0", flexible="0+")
class GroupEpochValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@structure
class ClassicProtocol:
    name: str = string()
    metadata: bytes = byte_string()


@structure
class ClassicMemberMetadata:
    """What a member of the classic protocol sent in its JoinGroup."""

    session_timeout_ms: int = int32()
    protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(versions="0", flexible="0+")
class MemberValue:
    """`classic` is None for members that speak the consumer protocol."""

    instance_id: str | None = string(null="0+", default=None)
    rack_id: str | None = string(null="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_names: list[str] = array(string)
    subscribed_pattern: str | None = string(null="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(null="0+", default=None)
    classic: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, null="0+", tag=0)


@message(versions="0", flexible="0+")
class TargetEpochValue:
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@structure
class TargetPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(versions="0", flexible="0+")
class MemberTargetValue:
    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


@structure
class AssignedPartitions:
    """`assignment_epochs` has the epoch in which each of the partitions was assigned; early releases wrote none."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null="0+", default=None, tag=0)


@message(versions="0", flexible="0+")
class MemberAssignmentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[AssignedPartitions] = array(AssignedPartitions)
    pending_revocation: list[AssignedPartitions] = array(AssignedPartitions)


@message(versions="0", flexible="0+")
class PatternValue:
    """`version` is that of the metadata that the topics were taken from."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


class GroupEpochChanged(NamedTuple):
    group: str
    value: GroupEpochValue | None


class MemberChanged(NamedTuple):
    group: str
    member_id: str
    value: MemberValue | None


class TargetEpochChanged(NamedTuple):
    group: str
    value: TargetEpochValue | None


class MemberTargetChanged(NamedTuple):
    group: str
    member_id: str
    value: MemberTargetValue | None


class MemberAssignmentChanged(NamedTuple):
    group: str
    member_id: str
    value: MemberAssignmentValue | None


class PatternResolved(NamedTuple):
    group: str
    pattern: str
    value: PatternValue | None


ConsumerChange = (
    GroupEpochChanged
    | MemberChanged
    | TargetEpochChanged
    | MemberTargetChanged
    | MemberAssignmentChanged
    | PatternResolved
)
ConsumerValue = (
    GroupEpochValue | MemberValue | TargetEpochValue | MemberTargetValue | MemberAssignmentValue | PatternValue
)
