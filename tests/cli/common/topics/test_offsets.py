"""Offsets of many partitions, from a broker."""

from collections.abc import Callable
from typing import Any

from tailrace.cli.common.connection import Connection
from tailrace.cli.common.topics.offsets import PARTITIONS_PER_REQUEST, Offsets, Partition


class RecordingAdmin:
    """A real client that notes how many partitions each request has."""

    def __init__(self, admin: Any) -> None:
        self.sizes: list[int] = []
        self._admin = admin

    def list_offsets(self, asked: dict[Any, Any], **options: Any) -> Any:
        self.sizes.append(len(asked))
        return self._admin.list_offsets(asked, **options)


def test_offsets_of_many_partitions_are_requested_in_slices(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """One request for all would take librdkafka minutes for 100,000 partitions."""
    count = 2 * PARTITIONS_PER_REQUEST + 1
    topic = new_topic(partitions=count)
    connection = Connection(bootstrap)
    admin: Any = RecordingAdmin(connection.admin())
    partitions = [Partition(topic, number) for number in range(count)]
    assert Offsets(connection, admin).latest(partitions) == dict.fromkeys(partitions, 0)
    assert admin.sizes == [PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST, 1]
