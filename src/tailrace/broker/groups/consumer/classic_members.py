"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat, by the rules of KIP-848.

A JoinGroup is a heartbeat that carries all: it is answered at once, with the member's epoch as the generation and no
leader. SyncGroup returns what the broker has assigned. A Heartbeat makes the member join again when its next step is
due. Pure, like `heartbeat`.
"""

from collections.abc import Collection

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.classic.consumer_protocol import read_subscription, write_assignment
from tailrace.broker.groups.classic.members import Joined, JoinRequest
from tailrace.broker.groups.classic.subscription import CONSUMER
from tailrace.broker.groups.consumer import heartbeat
from tailrace.broker.groups.consumer.draft import Catalog, Draft
from tailrace.broker.groups.consumer.state import (
    STATIC_LEFT_EPOCH,
    Current,
    GroupState,
    Member,
    MemberState,
    Partition,
    by_topic,
)
from tailrace.broker.groups.consumer_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    MemberChanged,
    MemberValue,
)
from tailrace.protocol.errors import ErrorCode, Malformed


def join(draft: Draft, joining: JoinRequest, member_id: str) -> Joined:
    """Decides a JoinGroup under this member id. Raises Refused."""
    check_protocols(draft.state, joining, member_id)
    details = details_of(joining)
    member = _member(draft, joining, member_id)
    is_new = member is None
    if is_new or (member is not None and details != member.details):
        draft.add(MemberChanged(draft.state.group_id, member_id, details))
    needs_epoch = is_new or (
        member is not None and draft.state.topics_of(member.details) != draft.state.topics_of(details)
    )
    needs_epoch |= bool(draft.changes) and draft.resolve_patterns()
    if draft.changes or draft.assignment_due_in_ms == 0:
        draft.settle(needs_epoch=needs_epoch)
    current = heartbeat.step(draft, member_id, owned_by(joining, draft.catalog), has_new_subscription=bool(needs_epoch))
    return Joined(current.epoch, CONSUMER, joining.protocols[0][0], "", member_id)


def _member(draft: Draft, joining: JoinRequest, member_id: str) -> Member | None:
    """Returns the member that joins again, under its new id if it is a static one; None if it is new."""
    state = draft.state
    instance_id = joining.identity.instance_id
    if instance_id is not None and instance_id in state.static:
        former = state.members[state.static[instance_id]]
        if former.member_id != member_id:
            if joining.identity.member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"another member has taken over instance id {instance_id}")
            if not former.is_classic and former.current.epoch != STATIC_LEFT_EPOCH:
                raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {instance_id} is still in the group")
            draft.replace(former, member_id)
        return draft.state.members[member_id]
    member = state.members.get(member_id)
    if member is None and len(state.members) >= draft.settings.size_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {state.group_id} has reached group.consumer.max.size")
    return member


def check_protocols(state: GroupState, joining: JoinRequest, member_id: str) -> None:
    """Raises Refused unless all members of the classic protocol support one of its assignors."""
    common = {name for name, _ in joining.protocols}
    for member in state.members.values():
        if member.details.classic is not None and member.member_id != member_id:
            common &= {protocol.name for protocol in member.details.classic.protocols}
    if joining.protocol_type != CONSUMER or not common:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members support none of these protocols")


def details_of(joining: JoinRequest) -> MemberValue:
    """Raises Refused for bytes that are no subscription."""
    try:
        subscription = read_subscription(joining.protocols[0][1])
    except Malformed as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"cannot read the subscription: {error}") from None
    return MemberValue(
        instance_id=joining.identity.instance_id,
        rack_id=subscription.rack_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        subscribed_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=joining.session_timeout_ms,
            protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in joining.protocols],
        ),
    )


def owned_by(joining: JoinRequest, catalog: Catalog) -> Collection[Partition]:
    """Returns the partitions that the member says it owns. One that does not say has given up all to join."""
    owned = read_subscription(joining.protocols[0][1]).owned_partitions
    facts = [(catalog.find(one.topic), one.partitions) for one in owned]
    return {(topic.topic_id, index) for topic, partitions in facts if topic is not None for index in partitions}


def check_generation(member: Member, generation: int) -> None:
    if generation != member.current.epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the member is in generation {member.current.epoch}")


def assignment_of(member: Member, catalog: Catalog) -> bytes:
    """Returns the current assignment of a member, in the encoding of its protocol."""
    named = {catalog.name_of(topic_id): indexes for topic_id, indexes in by_topic(member.current.assigned).items()}
    return write_assignment({name: indexes for name, indexes in named.items() if name is not None}, metadata_of(member))


def metadata_of(member: Member, protocol: str | None = None) -> bytes:
    """Returns what the member sent for a protocol; without one, for its first."""
    protocols = member.details.classic.protocols if member.details.classic is not None else ()
    return next((bytes(one.metadata) for one in protocols if protocol in (None, one.name)), b"")


def protocol_of(member: Member) -> str:
    """Returns the protocol that the member prefers, which is the one it was told in its JoinGroup response."""
    return member.details.classic.protocols[0].name if member.details.classic is not None else ""


def must_join_again(state: GroupState, member: Member, catalog: Catalog) -> bool:
    """Whether the next step of a member is due, which its next JoinGroup takes."""
    current: Current = member.current
    if current.epoch < state.assignment_epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is MemberState.STABLE:
        return False
    missing = member.target - current.assigned.keys()
    return all(catalog.name_of(partition[0]) is None or partition not in state.owners for partition in missing)
