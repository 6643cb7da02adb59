"""Share groups as backlog readers: their position in a partition is the first record that is not finished."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.readers import Position
from tailrace.facts.losses import LossKind

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.queues.queue_partition import QueuePartition


class QueueReader:
    loss_kind = LossKind.SKIPPED  # a share group goes on behind what is deleted

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker  # its queues are imported on first use

    def position(self, group: str, topic: str, partition: int) -> Position | None:
        queue = self._queue(group, topic, partition)
        if queue is None or queue.state is None:
            return None
        return Position(queue.state.start_offset, queue.moved_ms)

    def commit_times(self, group: str, topic: str) -> Sequence[int]:
        queues, found = self._broker.used_queues, self._broker.topic(topic)
        of_group = queues.groups.get(group) if queues is not None else None
        if of_group is None or found is None:
            return []
        return [queue.moved_ms for (topic_id, _), queue in of_group.partitions.items() if topic_id == found.topic_id]

    def positions_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        queues, found = self._broker.used_queues, self._broker.topic(topic)
        if queues is None or found is None:
            return []
        states = ((queue.state, queue.key.group) for queue in queues.of_partition(found.topic_id, partition))
        positions = ((state.start_offset, group) for state, group in states if state is not None)
        return sorted((position, group) for position, group in positions if first <= position < before)

    def unread(self, group: str, topic: str, partition: int, before: int) -> int:
        queue = self._queue(group, topic, partition)
        return queue.state.unfinished_before(before) if queue is not None and queue.state is not None else 0

    def has_members(self, group: str) -> bool:
        return False  # they are those of the group, which its other reader knows

    def _queue(self, group: str, topic: str, partition: int) -> "QueuePartition | None":
        queues, found = self._broker.used_queues, self._broker.topic(topic)
        return queues.find(group, found.topic_id, partition) if queues is not None and found is not None else None
