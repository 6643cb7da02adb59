"""The changes that one event makes to a group with epochs, of either kind: decided step by step, written as one batch.

A draft replays every change on a copy of the group's state at once, so that the next step sees it. The group itself
changes when the batch has been appended to the log. An event without changes copies and writes nothing.
"""

from collections.abc import Sized
from typing import Any, Generic, Protocol, Self, TypeVar


class EpochState(Protocol):
    """The state of a group: its epoch grows with every change that needs a new target assignment."""

    epoch: int
    assignment_epoch: int
    assigned_at_ms: int

    @property
    def members(self) -> Sized: ...

    def copy(self) -> Self: ...

    def replay(self, change: Any) -> None: ...


State = TypeVar("State", bound=EpochState)
Changed = TypeVar("Changed")


class EpochDraft(Generic[State, Changed]):
    def __init__(self, state: State, assignment_interval_ms: int, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.changes: list[Changed] = []
        self._assignment_interval_ms = assignment_interval_ms

    def add(self, change: Changed) -> None:
        if not self.changes:
            self.state = self.state.copy()
        self.state.replay(change)
        self.changes.append(change)

    @property
    def assignment_due_in_ms(self) -> int | None:
        """How long until a new target is computed; None if none is needed."""
        state = self.state
        if not state.members or state.epoch <= state.assignment_epoch:
            return None
        elapsed_ms = self.now_ms - state.assigned_at_ms
        # A clock that was set back must not delay the assignment for longer than the interval.
        return max(0, self._assignment_interval_ms - elapsed_ms) if elapsed_ms >= 0 else 0
