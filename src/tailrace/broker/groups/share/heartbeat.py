"""Decides a ShareGroupHeartbeat, and the ends of sessions: what becomes of the group, and what the member is told.

A heartbeat, in this order: find the member, or take it in; merge what it sends into its details; begin a new epoch if
that changes what it subscribes to; compute a new target if one is due; give the member its target. Pure: the changes
are collected in a draft.
"""

from collections.abc import Collection
from typing import NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.groups.consumer.draft import partitions_of_topics
from tailrace.broker.groups.consumer.heartbeat import JOINING_EPOCH
from tailrace.broker.groups.consumer.state import Partition
from tailrace.broker.groups.share.draft import ShareDraft
from tailrace.broker.groups.share.state import LEFT_EPOCH, Current, ShareGroupState, ShareMember
from tailrace.broker.groups.share_records import ShareMemberChanged, ShareMemberValue
from tailrace.protocol.errors import ErrorCode


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat. What is None has not changed since the last one."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    names: Collection[str] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.epoch == LEFT_EPOCH


class Outcome(NamedTuple):
    """What the member is told. The assignment is None if it has not changed."""

    epoch: int
    assignment: Collection[Partition] | None = None
    next_in_ms: int = 0  # when it shall send its next heartbeat


def check(beat: ShareHeartbeat, group_id: str) -> None:
    """Raises Refused for a request that no group accepts."""
    if not group_id or not beat.member_id or beat.rack_id == "":
        raise _invalid("the group id, the member id or the rack id is empty")
    if beat.epoch < LEFT_EPOCH:
        raise _invalid(f"there is no member epoch {beat.epoch}")
    if beat.epoch == JOINING_EPOCH and not beat.names:
        raise _invalid("a member that joins sends its subscription")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def unchanged(state: ShareGroupState, beat: ShareHeartbeat) -> Outcome | None:
    """Returns the outcome of a heartbeat that neither says nor causes anything new; None for any other."""
    if not JOINING_EPOCH < beat.epoch == state.assignment_epoch == state.epoch:
        return None
    if beat.names is not None or beat.rack_id is not None:
        return None
    member = state.members.get(beat.member_id)
    if member is None or not state.has_adopted(member):
        return None
    if (beat.client_id, beat.client_host) != (member.details.client_id, member.details.client_host):
        return None
    return Outcome(beat.epoch)


def beat(draft: ShareDraft, beat: ShareHeartbeat) -> Outcome:
    """A member joins, returns, or stays. Raises Refused."""
    member = _joining(draft, beat) if beat.epoch == JOINING_EPOCH else _staying(draft.state, beat)
    details = _merged(member.details, beat)
    is_new = member.member_id not in draft.state.members
    has_new_subscription = details.subscribed_names != member.details.subscribed_names
    if is_new or details != member.details:
        draft.add(ShareMemberChanged(draft.state.group_id, member.member_id, details))
    draft.settle(needs_epoch=is_new or has_new_subscription)
    current = _adopt(draft, member.member_id, has_new_subscription=has_new_subscription)
    is_full = beat.epoch == JOINING_EPOCH or beat.names is not None
    is_told = is_full or current.assigned != member.current.assigned
    return Outcome(current.epoch, current.assigned if is_told else None)


def _joining(draft: ShareDraft, beat: ShareHeartbeat) -> ShareMember:
    """Returns the member that joins or returns; one that is new is not in the group yet."""
    state = draft.state
    member = state.members.get(beat.member_id)
    if member is None:
        if len(state.members) >= draft.settings.size_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {state.group_id} has reached group.share.max.size")
        return ShareMember(beat.member_id, ShareMemberValue())
    return member


def _staying(state: ShareGroupState, beat: ShareHeartbeat) -> ShareMember:
    """Returns the member. Raises Refused unless its epoch is the current one, or the previous: then the response to its
    last heartbeat was lost.
    """
    member = find(state, beat.member_id)
    current = member.current
    if beat.epoch not in (current.epoch, current.previous_epoch):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {current.epoch}, not {beat.epoch}: it has to join again",
        )
    return member


def find(state: ShareGroupState, member_id: str) -> ShareMember:
    member = state.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {state.group_id} has no such member")
    return member


def _merged(details: ShareMemberValue, beat: ShareHeartbeat) -> ShareMemberValue:
    """Returns the details of a member, with what it has sent."""
    return ShareMemberValue(
        rack_id=details.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        subscribed_names=details.subscribed_names if beat.names is None else sorted(set(beat.names)),
    )


def _adopt(draft: ShareDraft, member_id: str, *, has_new_subscription: bool) -> Current:
    """Gives a member its target, without topics that it does not subscribe to any more."""
    state = draft.state
    member = state.members[member_id]
    current = member.current
    if state.has_adopted(member) and not has_new_subscription:
        return current
    topics = frozenset(member.details.subscribed_names)
    assigned = frozenset(partitions_of_topics(member.target, topics, draft.topics))
    if not state.has_adopted(member):
        current = Current(state.assignment_epoch, current.epoch)
    current = current._replace(assigned=assigned)
    draft.set_current(member, current)
    return current


# The ends of members


def leave(draft: ShareDraft, beat: ShareHeartbeat) -> Outcome:
    """A member leaves. Raises Refused."""
    remove(draft, find(draft.state, beat.member_id).member_id)
    return Outcome(LEFT_EPOCH)


def remove(draft: ShareDraft, member_id: str) -> None:
    """Removes a member, because it leaves or has fallen silent: others get its partitions."""
    draft.remove(member_id)
    draft.settle(needs_epoch=True)


def refresh(draft: ShareDraft) -> None:
    """Decides without a heartbeat: topics have changed, or a new target is due."""
    draft.settle(needs_epoch=False)
