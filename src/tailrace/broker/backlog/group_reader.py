"""Consumer groups as backlog readers: their positions are the offsets they have committed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.readers import Position
from tailrace.facts.losses import LossKind
from tailrace.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class GroupReader:
    loss_kind = LossKind.MISSED

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker  # its groups are imported on first use

    def position(self, group: str, topic: str, partition: int) -> Position | None:
        value = self._broker.groups.offsets.get(group, topic, partition)
        if value is None or not self._is_current(topic, value.topic_id):
            return None
        return Position(value.offset, value.commit_timestamp)

    def commit_times(self, group: str, topic: str) -> Sequence[int]:
        values = self._broker.groups.offsets.of_group(group).get(topic, {}).values()
        return [value.commit_timestamp for value in values if self._is_current(topic, value.topic_id)]

    def _is_current(self, name: str, topic_id: bytes) -> bool:
        """Whether a commit with this id, which may have none, is for the topic that has the name now."""
        topic = self._broker.topic(name)
        return topic is not None and topic_id in (topic.topic_id, ZERO_UUID)

    def positions_between(self, topic: str, partition: int, first: int, before: int) -> Sequence[tuple[int, str]]:
        return self._broker.groups.offsets.committed_between(topic, partition, first, before)

    def unread(self, group: str, topic: str, partition: int, before: int) -> int:
        value = self._broker.groups.offsets.get(group, topic, partition)
        return before - value.offset if value is not None else 0

    def has_members(self, group: str) -> bool:
        found = self._broker.groups.groups.get(group)
        return found is not None and bool(found.members)
