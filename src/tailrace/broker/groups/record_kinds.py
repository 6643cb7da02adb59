"""The kinds of records of consumer and share groups: by number, with the classes of their keys and values."""

from typing import Any, NamedTuple

from tailrace.broker.groups.consumer_records import (
    ConsumerChange,
    ConsumerValue,
    GroupEpochChanged,
    GroupEpochValue,
    MemberAssignmentChanged,
    MemberAssignmentValue,
    MemberChanged,
    MemberTargetChanged,
    MemberTargetValue,
    MemberValue,
    PatternResolved,
    PatternValue,
    TargetEpochChanged,
    TargetEpochValue,
)
from tailrace.broker.groups.share_records import (
    ShareAssignmentChanged,
    ShareAssignmentValue,
    ShareChange,
    ShareEpochChanged,
    ShareEpochValue,
    ShareMemberChanged,
    ShareMemberValue,
    ShareTargetChanged,
    ShareTargetEpochChanged,
    ShareValue,
    StatePartitionsChanged,
    StatePartitionsValue,
)
from tailrace.protocol.fields import string
from tailrace.protocol.message import message


@message(versions="3-15")
class GroupKey:
    group: str = string()


@message(versions="5-14")
class MemberKey:
    group: str = string()
    member_id: str = string()


@message(versions="16")
class PatternKey:
    group: str = string()
    pattern: str = string()


EpochChange = ConsumerChange | ShareChange
"""A change of a group that has epochs: a consumer group or a share group."""

EpochKey = GroupKey | MemberKey | PatternKey
EpochValue = ConsumerValue | ShareValue


class RecordKind(NamedTuple):
    """The fields of a key are those of the change, in the same order, but for the value."""

    key: type[EpochKey]
    value: type[EpochValue]
    change: type[EpochChange]


KINDS: dict[int, RecordKind] = {
    3: RecordKind(GroupKey, GroupEpochValue, GroupEpochChanged),
    5: RecordKind(MemberKey, MemberValue, MemberChanged),
    6: RecordKind(GroupKey, TargetEpochValue, TargetEpochChanged),
    7: RecordKind(MemberKey, MemberTargetValue, MemberTargetChanged),
    8: RecordKind(MemberKey, MemberAssignmentValue, MemberAssignmentChanged),
    10: RecordKind(MemberKey, ShareMemberValue, ShareMemberChanged),
    11: RecordKind(GroupKey, ShareEpochValue, ShareEpochChanged),
    12: RecordKind(GroupKey, TargetEpochValue, ShareTargetEpochChanged),
    13: RecordKind(MemberKey, MemberTargetValue, ShareTargetChanged),
    14: RecordKind(MemberKey, ShareAssignmentValue, ShareAssignmentChanged),
    15: RecordKind(GroupKey, StatePartitionsValue, StatePartitionsChanged),
    16: RecordKind(PatternKey, PatternValue, PatternResolved),
}

_KIND_OF: dict[type[EpochChange], int] = {kind.change: number for number, kind in KINDS.items()}


def key_of(change: EpochChange) -> tuple[int, EpochKey]:
    """Returns the kind of the record of a change, and its key."""
    number = _KIND_OF[type(change)]
    made: Any = KINDS[number].key
    return number, made(**{name: getattr(change, name) for name in change._fields[:-1]})


def change_of(number: int, key: EpochKey, value: EpochValue | None) -> EpochChange:
    """Returns the change that a record of this kind stands for: the inverse of `key_of`."""
    made: Any = KINDS[number].change
    change: EpochChange = made(*(getattr(key, name) for name in made._fields[:-1]), value)
    return change
