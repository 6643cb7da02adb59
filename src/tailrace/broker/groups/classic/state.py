"""The states of a classic group, the transitions between them, and what a group needs from the coordinator."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from tailrace.broker.groups.records import GroupMetadataValue
from tailrace.broker.groups.timers import Timers


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"  # Kafka's state for a group that does not exist


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
}


class GroupSettings(NamedTuple):
    initial_delay_ms: int = 3_000
    size_max: int = 2**31 - 1


class HeldBytes:
    """How many bytes the members of all groups make the broker keep."""

    def __init__(self) -> None:
        self.bytes = 0


class Ports(NamedTuple):
    """The group's interface to the coordinator. `save` appends the group to its log and replays it with `group.replay`;
    it raises NotSaved if that fails.
    """

    timers: Timers
    held: HeldBytes
    save: Callable[[str, GroupMetadataValue], None]
    random_id: Callable[[], str]
