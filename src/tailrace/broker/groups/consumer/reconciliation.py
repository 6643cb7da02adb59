"""Reconciliation: the next step of one member from its current assignment to its target. Pure.

    state       condition                                          outcome
    ----------  -------------------------------------------------  ----------------------------------------------------
    Stable      the member has the target's epoch                  unchanged; topics it no longer subscribes to are
                                                                   revoked (Unrevoked, same epoch)
    Unrevoked   it did not say what it owns, or still owns         unchanged
                a partition pending revocation
    any other                                                      *next*

*Next*, where the target is without the topics that the member does not subscribe to:

    keep   = assigned and in the target
    revoke = assigned and not in the target
    add    = in the target, not assigned, and without an owner; what is left of the target is *unreleased*

    it may still own a partition of `revoke`     Unrevoked at the same epoch, with `keep`; `revoke` is pending
    else, something is unreleased                Unreleased at the target's epoch, with `keep` and `add`
    else                                         Stable at the target's epoch, with `keep` and `add`

So a member takes a partition only when no other one has it, and adopts an epoch only when it has given up all that the
epoch takes from it. Members that pend a revocation for longer than their rebalance timeout are removed (`heartbeat`).
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from tailrace.broker.groups.consumer.state import Current, MemberState, Partition


class Target(NamedTuple):
    """What a member shall have, without topics it does not subscribe to."""

    epoch: int
    partitions: frozenset[Partition]


def reconcile(
    current: Current,
    target: Target,
    owned: Collection[Partition] | None,
    is_free: Callable[[Partition], bool],
    is_subscribed: Callable[[bytes], bool] | None = None,
) -> Current:
    """Returns the member's next assignment. `owned` is what the member says it has, None if it does not say; `is_free`
    tells whether a partition has no owner but this member; `is_subscribed` takes a topic id, and is given if the
    member's subscription has changed.
    """
    if current.state is MemberState.UNREVOKED and _may_own(owned, current.pending):
        return current
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return current if is_subscribed is None else _unsubscribe(current, owned, is_subscribed)
    return _next(current, target, owned, is_free)


def _may_own(owned: Collection[Partition] | None, partitions: Mapping[Partition, int]) -> bool:
    """Whether the member may still read one of these partitions."""
    return owned is None or any(partition in partitions for partition in owned)


def _unsubscribe(
    current: Current, owned: Collection[Partition] | None, is_subscribed: Callable[[bytes], bool]
) -> Current:
    keep = {partition: since for partition, since in current.assigned.items() if is_subscribed(partition[0])}
    revoke = {partition: since for partition, since in current.assigned.items() if partition not in keep}
    if not revoke:
        return current
    if not _may_own(owned, revoke):
        return current._replace(assigned=keep)
    return current._replace(state=MemberState.UNREVOKED, assigned=keep, pending=revoke)


def _next(
    current: Current, target: Target, owned: Collection[Partition] | None, is_free: Callable[[Partition], bool]
) -> Current:
    wanted = target.partitions
    keep = {partition: since for partition, since in current.assigned.items() if partition in wanted}
    revoke = {partition: since for partition, since in current.assigned.items() if partition not in wanted}
    if revoke and _may_own(owned, revoke):
        return current._replace(state=MemberState.UNREVOKED, assigned=keep, pending=revoke)
    missing = [partition for partition in wanted if partition not in keep]
    add = {partition: target.epoch for partition in missing if is_free(partition)}
    is_complete = len(add) == len(missing)
    return Current(
        target.epoch,
        current.epoch if current.epoch != target.epoch else current.previous_epoch,
        MemberState.STABLE if is_complete else MemberState.UNRELEASED,
        keep | add,
    )
