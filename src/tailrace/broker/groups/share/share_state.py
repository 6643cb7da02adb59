"""What the membership of share groups needs of the states of their partitions, which are kept elsewhere.

The state comes first: a partition has one before the log of groups names it, and a group loses its states before it is
removed. So a crash in between leaves nothing behind that the next attempt would not find.
"""

from collections.abc import Collection
from typing import Protocol

from tailrace.broker.core.delayed import Answer, DelayedResponse


class ShareState(Protocol):
    """The states of the partitions of all share groups. Its keeper learns from the metadata log that topics end."""

    def initialize(self, group_id: str, topic_id: bytes, partitions: Collection[int], epoch: int) -> None:
        """Gives partitions a state, unless they have one: they are about to be assigned to members for the first time.
        `epoch` is the group's. Raises Refused if that fails.
        """
        ...

    def deleted(self, group_id: str) -> None:
        """Removes all states of a group, which has no members. Raises Refused if that fails."""
        ...

    def when_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        """Returns the response, once all that the others have written is on disk."""
        ...


class NoShareState:
    """Keeps no states: a broker whose share groups have members, and no records to give them."""

    def initialize(self, group_id: str, topic_id: bytes, partitions: Collection[int], epoch: int) -> None:
        """Nothing is kept."""

    def deleted(self, group_id: str) -> None:
        """Nothing is kept."""

    def when_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        return answer
