"""Decides a ConsumerGroupHeartbeat, and the ends of sessions: what becomes of the group, and what the member is told.

A heartbeat, in this order: find the member, or take it in; merge what it sends into its details; begin a new epoch if
that changes what it subscribes to; compute a new target if one is due; bring the member one step closer to its target
(`reconciliation`). Pure: the changes are collected in a draft.
"""

from collections.abc import Collection
from typing import NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.consumer.draft import Draft, partitions_of_topics
from tailrace.broker.groups.consumer.reconciliation import Target, reconcile
from tailrace.broker.groups.consumer.state import (
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    Current,
    GroupState,
    Member,
    Partition,
)
from tailrace.broker.groups.consumer_records import MemberChanged, MemberValue
from tailrace.protocol.errors import ErrorCode

JOINING_EPOCH = 0


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat. What is None (the timeout: below 0) has not changed since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    names: Collection[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[Partition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether it repeats all that the broker should know: then the response does, too."""
        has_subscription = self.names is not None or self.pattern is not None
        return self.rebalance_timeout_ms >= 0 and has_subscription and self.owned is not None


class Outcome(NamedTuple):
    """What the member is told. The assignment is None if it has not changed."""

    member_id: str
    epoch: int
    assignment: Collection[Partition] | None = None


def check(beat: Heartbeat, group_id: str, version: int, assignors: Collection[str]) -> None:
    """Raises Refused for a request that no group accepts."""
    if not group_id:
        raise _invalid("the group id is empty")
    if beat.epoch > JOINING_EPOCH and beat.member_id and beat.instance_id is beat.rack_id is beat.assignor is None:
        return  # most heartbeats, by far
    if beat.instance_id == "" or beat.rack_id == "":
        raise _invalid("the instance id or the rack id is empty")
    if not beat.member_id and (version > 0 or beat.epoch != JOINING_EPOCH):
        raise _invalid("the member id is empty")
    if beat.epoch < STATIC_LEFT_EPOCH:
        raise _invalid(f"there is no member epoch {beat.epoch}")
    if beat.epoch == STATIC_LEFT_EPOCH and beat.instance_id is None:
        raise _invalid("only a static member leaves with epoch -2")
    if beat.epoch == JOINING_EPOCH:
        _check_joining(beat)
    if beat.assignor is not None and beat.assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"no assignor {beat.assignor!r}: there are {', '.join(assignors)}"
        )


def _check_joining(beat: Heartbeat) -> None:
    if beat.rebalance_timeout_ms < 0:
        raise _invalid("a member that joins sends its rebalance timeout")
    if beat.owned is None or beat.owned:
        raise _invalid("a member that joins owns no partitions, and sends an empty list of them")
    if beat.names is None and beat.pattern is None:
        raise _invalid("a member that joins sends its subscription")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def unchanged(state: GroupState, beat: Heartbeat) -> Outcome | None:
    """Returns the outcome of a heartbeat that neither says nor causes anything new; None for any other."""
    if beat.epoch <= JOINING_EPOCH or beat.epoch != state.assignment_epoch or state.epoch != beat.epoch:
        return None
    if beat.names is not None or beat.rebalance_timeout_ms >= 0 or beat.pattern is not None:
        return None
    if beat.assignor is not None or beat.rack_id is not None:
        return None
    member = state.members.get(beat.member_id)
    if member is None or not state.has_adopted(member) or member.is_classic:
        return None
    details = member.details
    if (beat.instance_id, beat.client_id, beat.client_host) != (
        details.instance_id,
        details.client_id,
        details.client_host,
    ):
        return None
    return Outcome(beat.member_id, beat.epoch)


def beat(draft: Draft, beat: Heartbeat) -> Outcome:
    """Decides a heartbeat of a member that stays or joins. Raises Refused."""
    member = _joining(draft, beat) if beat.epoch == JOINING_EPOCH else _staying(draft.state, beat)
    before = member.current.assigned
    topics_before = draft.state.topics_of(member.details)
    details = merged(member.details, beat)
    if details.subscribed_pattern and details.subscribed_pattern not in draft.state.pattern_subscribers:
        draft.catalog.check(details.subscribed_pattern)
    is_new = member.member_id not in draft.state.members
    if is_new or details is not member.details:
        draft.add(MemberChanged(draft.state.group_id, member.member_id, details))
    needs_epoch = is_new
    if draft.changes:
        needs_epoch |= draft.resolve_patterns()
        needs_epoch |= topics_before != draft.state.topics_of(details)
    if draft.changes or draft.assignment_due_in_ms == 0:
        draft.settle(needs_epoch=needs_epoch)
    current = step(draft, member.member_id, beat.owned, has_new_subscription=details is not member.details)
    is_told = beat.epoch == JOINING_EPOCH or beat.is_full or current.assigned.keys() != before.keys()
    return Outcome(member.member_id, current.epoch, current.assigned if is_told else None)


def step(
    draft: Draft, member_id: str, owned: Collection[Partition] | None, *, has_new_subscription: bool = False
) -> Current:
    """Brings a member one step closer to its target, and returns its assignment then."""
    state = draft.state
    member = state.members[member_id]
    if state.has_adopted(member) and not has_new_subscription:
        return member.current
    catalog = draft.catalog
    topics = state.topics_of(member.details)
    target = Target(state.assignment_epoch, frozenset(partitions_of_topics(member.target, topics, catalog)))
    current = reconcile(
        member.current,
        target,
        owned,
        lambda partition: state.owners.get(partition, member_id) == member_id,
        (lambda topic_id: catalog.name_of(topic_id) in topics) if has_new_subscription else None,
    )
    draft.set_current(member_id, current)
    return current


def merged(details: MemberValue, beat: Heartbeat) -> MemberValue:
    """Returns the details of a member, with what it has sent. Returns the same object if nothing has changed."""
    names = sorted(set(beat.names)) if beat.names is not None else details.subscribed_names
    pattern = (beat.pattern or None) if beat.pattern is not None else details.subscribed_pattern
    changed = MemberValue(
        instance_id=details.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=details.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        subscribed_names=names,
        subscribed_pattern=pattern,
        rebalance_timeout_ms=beat.rebalance_timeout_ms
        if beat.rebalance_timeout_ms >= 0
        else details.rebalance_timeout_ms,
        server_assignor=details.server_assignor if beat.assignor is None else beat.assignor,
    )
    return details if changed == details else changed


# The member of a request


def _joining(draft: Draft, beat: Heartbeat) -> Member:
    """Returns the member that joins or returns; one that is new is not in the group yet."""
    state = draft.state
    if beat.instance_id is not None and beat.instance_id in state.static:
        former = state.members[state.static[beat.instance_id]]
        if former.member_id == beat.member_id:
            return former
        if not former.is_classic and former.current.epoch != STATIC_LEFT_EPOCH:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"a member with the instance id {beat.instance_id} is still in the group, until its session expires",
            )
        draft.replace(former, beat.member_id)
        return draft.state.members[beat.member_id]
    member = state.members.get(beat.member_id)
    if member is None:
        if len(state.members) >= draft.settings.size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {state.group_id} has reached group.consumer.max.size"
            )
        return Member(beat.member_id, MemberValue())
    return member


def _staying(state: GroupState, beat: Heartbeat) -> Member:
    member = find(state, beat.member_id, beat.instance_id)
    check_epoch(member, beat.epoch, beat.owned)
    return member


def find(state: GroupState, member_id: str, instance_id: str | None) -> Member:
    """Returns a member. Raises Refused if it is none, or if another member has taken over its instance id."""
    if instance_id is not None:
        known = state.static.get(instance_id)
        if known is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {state.group_id} has no member with instance id {instance_id}"
            )
        if known != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"another member has taken over instance id {instance_id}")
    member = state.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {state.group_id} has no such member")
    return member


def check_epoch(member: Member, epoch: int, owned: Collection[Partition] | None) -> None:
    """Raises Refused unless the epoch is the member's, or its previous one: then the response to its last heartbeat was
    lost, and it owns nothing beyond its assignment.
    """
    current = member.current
    if epoch == current.epoch:
        return
    is_previous = epoch < current.epoch and epoch == current.previous_epoch
    if not (is_previous and owned is not None and current.assigned.keys() >= set(owned)):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"the member is at epoch {current.epoch}, not {epoch}: it has to join again"
        )


# The ends of members


def leave(draft: Draft, beat: Heartbeat) -> Outcome:
    """A member leaves. A static one that will be back keeps its assignment while its session lasts. Raises Refused."""
    member = find(draft.state, beat.member_id, beat.instance_id)
    if beat.epoch == STATIC_LEFT_EPOCH:
        assigned = dict.fromkeys(member.current.assigned, 0)  # its client is gone: what it had yet to revoke is free
        left = Current(STATIC_LEFT_EPOCH, member.current.epoch, assigned=assigned)
        draft.set_current(member.member_id, left)
    else:
        remove(draft, [member.member_id])
    return Outcome(member.member_id, beat.epoch)


def remove(draft: Draft, member_ids: Collection[str]) -> None:
    """Removes members, because they leave or have fallen silent: their partitions go to others."""
    draft.remove(member_ids)
    draft.resolve_patterns()
    draft.settle(needs_epoch=True)


def refresh(draft: Draft) -> None:
    """Decides without a heartbeat: subscribed topics have changed, or a new target is due."""
    draft.settle(needs_epoch=draft.resolve_patterns())
