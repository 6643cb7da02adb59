"""A classic group becomes a consumer group, and the other way round, while its members keep working.

    upgrade    the first member of the consumer protocol joins: generation and assignments become epochs and targets
    downgrade  the last one leaves: the members of the classic protocol rebalance, beginning with what they have

Pure: returns the changes, which are written as one batch, with those of the request that caused the migration.
"""

from collections.abc import Iterable
from enum import StrEnum

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.consumer_protocol import read_assignment
from tailrace.broker.groups.classic.group import ClassicGroup
from tailrace.broker.groups.classic.members import JoinRequest
from tailrace.broker.groups.classic.members import Member as ClassicMember
from tailrace.broker.groups.classic.subscription import CONSUMER
from tailrace.broker.groups.consumer.classic_members import assignment_of, details_of, metadata_of
from tailrace.broker.groups.consumer.draft import Catalog, Draft, hash_of_topics
from tailrace.broker.groups.consumer.state import (
    Current,
    GroupState,
    Member,
    Partition,
    current_value,
    target_value,
)
from tailrace.broker.groups.consumer_records import (
    GroupEpochChanged,
    GroupEpochValue,
    MemberAssignmentChanged,
    MemberChanged,
    MemberTargetChanged,
    PatternResolved,
    TargetEpochChanged,
    TargetEpochValue,
)
from tailrace.broker.groups.group import Identity
from tailrace.broker.groups.records import Change, GroupMetadataValue, GroupSaved, MemberMetadata
from tailrace.protocol.errors import ErrorCode, Malformed


class MigrationPolicy(StrEnum):
    """group.consumer.migration.policy."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


def upgrade(group: ClassicGroup, draft: Draft, policy: str) -> None:
    """Adds the members of a classic group, with what they have, to the draft of a new group. Raises Refused."""
    if policy not in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE):
        raise _impossible(group, f"group.consumer.migration.policy is {policy}")
    if group.protocol_type != CONSUMER:
        raise _impossible(group, f"its protocol type is {group.protocol_type!r}")
    if len(group.members) > draft.settings.size_max:
        raise _impossible(group, "it has more members than group.consumer.max.size")
    group_id, epoch = group.group_id, group.generation
    taken: set[Partition] = set()
    members = [_upgraded(group, member, taken, draft.catalog) for member in group.members.values()]
    for member in members:
        draft.add(MemberChanged(group_id, member.member_id, member.details))
    metadata_hash = hash_of_topics(draft.state.topics, draft.catalog)
    draft.add(GroupEpochChanged(group_id, GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash)))
    for member in members:
        draft.add(MemberTargetChanged(group_id, member.member_id, target_value(member.target)))
    draft.add(TargetEpochChanged(group_id, TargetEpochValue(assignment_epoch=epoch)))
    for member in members:
        draft.add(MemberAssignmentChanged(group_id, member.member_id, current_value(member.current)))


def _impossible(group: ClassicGroup, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id!r} is a classic group, and cannot change its protocol: {reason}"
    )


def _upgraded(group: ClassicGroup, member: ClassicMember, taken: set[Partition], catalog: Catalog) -> Member:
    try:
        assignment = read_assignment(member.assignment)
    except Malformed:
        raise _impossible(group, "the assignment of a member cannot be read") from None
    if assignment.user_data:
        raise _impossible(group, "its assignor keeps data of its own in assignments")
    try:
        details = details_of(_as_join(group, member))
    except Refused as error:
        raise _impossible(group, error.message) from None
    facts = [(catalog.find(one.topic), one.partitions) for one in assignment.assigned_partitions]
    assigned = {(topic.topic_id, index) for topic, indexes in facts if topic is not None for index in indexes} - taken
    taken |= assigned
    current = Current(group.generation, group.generation, assigned=dict.fromkeys(assigned, group.generation))
    return Member(member.member_id, details, frozenset(assigned), current)


def _as_join(group: ClassicGroup, member: ClassicMember) -> JoinRequest:
    return JoinRequest(
        Identity(member.member_id, member.instance_id),
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        group.protocol_type,
        member.protocols,
    )


def is_downgrade_due(state: GroupState, policy: str) -> bool:
    """Whether the group has members, all of which speak the classic protocol."""
    if policy not in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE):
        return False
    return bool(state.members) and state.classic_count == len(state.members)


def downgrade(state: GroupState, generation: int, catalog: Catalog) -> list[Change]:
    """Returns what makes a classic group of the members, which all speak the classic protocol. `generation` is the
    epoch that they know: until they join again they may commit in it.
    """
    changes: list[Change] = []
    for member_id in state.members:
        changes.append(MemberAssignmentChanged(state.group_id, member_id, None))
        changes.append(MemberTargetChanged(state.group_id, member_id, None))
        changes.append(MemberChanged(state.group_id, member_id, None))
    changes += tombstones(state)
    members = list(state.members.values())
    protocol = _common_protocol(members)
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=generation,
        protocol=protocol,
        leader=None,  # so that a start knows that the members have yet to rebalance
        members=[_downgraded(member, protocol, catalog) for member in members],
    )
    return [*changes, GroupSaved(state.group_id, value)]


def tombstones(state: GroupState) -> list[Change]:
    """Returns what removes a group without its members from the log."""
    return [
        *(PatternResolved(state.group_id, pattern, None) for pattern in state.patterns),
        TargetEpochChanged(state.group_id, None),
        GroupEpochChanged(state.group_id, None),
    ]


def _common_protocol(members: Iterable[Member]) -> str:
    """All members of the classic protocol share one (`check_protocols`)."""
    names = [
        [protocol.name for protocol in member.details.classic.protocols]
        for member in members
        if member.details.classic is not None
    ]
    return next(name for name in names[0] if all(name in others for others in names))


def _downgraded(member: Member, protocol: str, catalog: Catalog) -> MemberMetadata:
    details, classic = member.details, member.details.classic
    assert classic is not None
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=details.instance_id,
        client_id=details.client_id,
        client_host=details.client_host,
        rebalance_timeout=details.rebalance_timeout_ms,
        session_timeout=classic.session_timeout_ms,
        subscription=metadata_of(member, protocol),
        assignment=assignment_of(member, catalog),
    )
