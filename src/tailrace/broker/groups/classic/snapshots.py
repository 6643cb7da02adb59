"""Converts a classic group to the record that the log of groups keeps of it, and such a record back to members."""

from typing import TYPE_CHECKING

from tailrace.broker.groups.classic.members import JoinRequest, Member
from tailrace.broker.groups.group import Identity
from tailrace.broker.groups.records import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from tailrace.broker.groups.classic.group import ClassicGroup


def saved_group(group: "ClassicGroup") -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def restored_member(saved: MemberMetadata, group: GroupMetadataValue) -> Member:
    """Restores a member from the log: with only the protocol that was chosen, and no parked response."""
    is_timeout_known = saved.rebalance_timeout >= 0  # early releases of Kafka did not write it
    member = Member(
        saved.member_id,
        JoinRequest(
            Identity(saved.member_id, saved.group_instance_id),
            saved.client_id,
            saved.client_host,
            saved.session_timeout,
            saved.rebalance_timeout if is_timeout_known else saved.session_timeout,
            group.protocol_type,
            ((group.protocol or "", saved.subscription),),
        ),
    )
    member.has_synced = True
    return member
