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
    DEAD = "Dead"  # of a group that is not there: how Kafka says so


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
    """How many bytes the members of all groups have given us to keep."""

    def __init__(self) -> None:
        self.bytes = 0


class Ports(NamedTuple):
    """What a group needs of the world. `save` appends the group to its log and has it replayed into `group.replay`;
    it raises NotSaved where it cannot.
    """

    timers: Timers
    held: HeldBytes
    save: Callable[[str, GroupMetadataValue], None]
    random_id: Callable[[], str]
