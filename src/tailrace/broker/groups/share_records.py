"""The records of share groups (KIP-932) in the log of groups: kinds 10 to 15, in Kafka's formats.

    10  a member: who it is, and what it subscribes to
    11  the epoch of a group: it grows with every change that needs a new assignment
    12  the epoch of the target assignment
    13  the target assignment of a member
    14  the current assignment of a member, and its epoch
    15  the partitions that the group has a state of

Kinds 12 and 13 have the values that consumer groups have. Lists of topics and partitions may come in any order. A
change without a value removes what its key names.
"""

from typing import NamedTuple

from tailrace.broker.groups.consumer_records import MemberTargetValue, TargetEpochValue
from tailrace.protocol.fields import array, int8, int32, int64, string, uuid
from tailrace.protocol.message import message, structure


@message(versions="0", flexible="0+")
class ShareMemberValue:
    rack_id: str | None = string(null="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_names: list[str] = array(string)


@message(versions="0", flexible="0+")
class ShareEpochValue:
    epoch: int = int32()
    metadata_hash: int = int64()


@structure
class SharePartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(versions="0", flexible="0+")
class ShareAssignmentValue:
    """`state` is a number of Kafka's: a member of a share group is always stable, which is 0."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[SharePartitions] = array(SharePartitions)


@structure
class StateTopic:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class DeletedTopic:
    topic_id: bytes = uuid()
    topic_name: str = string()


@message(versions="0", flexible="0+")
class StatePartitionsValue:
    """This broker writes none that are in between: a state begins and ends at once."""

    initializing: list[StateTopic] = array(StateTopic)
    initialized: list[StateTopic] = array(StateTopic)
    deleting: list[DeletedTopic] = array(DeletedTopic)


class ShareMemberChanged(NamedTuple):
    group: str
    member_id: str
    value: ShareMemberValue | None


class ShareEpochChanged(NamedTuple):
    group: str
    value: ShareEpochValue | None


class ShareTargetEpochChanged(NamedTuple):
    group: str
    value: TargetEpochValue | None


class ShareTargetChanged(NamedTuple):
    group: str
    member_id: str
    value: MemberTargetValue | None


class ShareAssignmentChanged(NamedTuple):
    group: str
    member_id: str
    value: ShareAssignmentValue | None


class StatePartitionsChanged(NamedTuple):
    group: str
    value: StatePartitionsValue | None


ShareChange = (
    ShareMemberChanged
    | ShareEpochChanged
    | ShareTargetEpochChanged
    | ShareTargetChanged
    | ShareAssignmentChanged
    | StatePartitionsChanged
)
ShareValue = ShareMemberValue | ShareEpochValue | ShareAssignmentValue | StatePartitionsValue
