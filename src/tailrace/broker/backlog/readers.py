"""What a kind of consumers tells about its positions. Consumer groups are one kind; queues will be another."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Position(NamedTuple):
    """How far a group has come in one partition: the first offset that it has not read, and when it said so."""

    offset: int
    at_ms: int


class BacklogReader(Protocol):
    """All groups of one kind."""

    def position(self, group: str, topic: str, partition: int) -> Position | None:
        """Returns None where the group has never committed."""

    def commit_times(self, group: str, topic: str) -> Sequence[int]:
        """Returns when the group committed each of its positions in this topic."""

    def positions_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        """Returns position and group of each group that stands from `first` on and below `before`, sorted."""

    def has_members(self, group: str) -> bool: ...
