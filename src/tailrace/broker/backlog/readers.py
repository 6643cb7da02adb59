"""What a kind of consumers tells about its positions. Consumer groups are one kind; share groups are another."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tailrace.facts.losses import LossKind


class Position(NamedTuple):
    """How far a group has come in one partition: the first offset that it has not read, and when it said so."""

    offset: int
    at_ms: int


class BacklogReader(Protocol):
    """All groups of one kind."""

    loss_kind: LossKind
    """What it means for a group that records are deleted which it has not read: `MISSED` until it commits, or
    `SKIPPED`.
    """

    def position(self, group: str, topic: str, partition: int) -> Position | None:
        """Returns None where the group has never committed."""

    def commit_times(self, group: str, topic: str) -> Sequence[int]:
        """Returns when the group committed each of its positions in this topic."""

    def positions_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        """Returns position and group of each group that stands from `first` on and below `before`, sorted."""

    def unread(self, group: str, topic: str, partition: int, before: int) -> int:
        """Returns how many records before an offset the group has not read; it stands before that."""

    def has_members(self, group: str) -> bool: ...
