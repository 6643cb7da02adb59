"""What the membership of share groups needs of the states of their partitions, which are kept elsewhere.

The state comes first: a partition has one before the log of groups names it, and a group loses its states before it is
removed. So a crash in between leaves nothing behind that the next attempt would not find.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.core.delayed import Answer, DelayedResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


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


class BrokerShareState:
    """The states that the broker's queues keep, which are imported on first use."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def initialize(self, group_id: str, topic_id: bytes, partitions: Collection[int], epoch: int) -> None:
        self._broker.queues.initialize(group_id, topic_id, partitions, epoch)

    def deleted(self, group_id: str) -> None:
        self._broker.queues.deleted(group_id)

    def when_safe(self, answer: Answer | DelayedResponse[Answer]) -> Answer | DelayedResponse[Answer]:
        queues = self._broker.used_queues
        return answer if queues is None else queues.when_safe(answer)
