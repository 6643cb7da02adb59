"""What share partitions go by."""

from typing import NamedTuple

TopicPartitionId = tuple[bytes, int]
"""A topic id, and the index of a partition."""


class ShareKey(NamedTuple):
    """A share partition: what one share group knows of one partition."""

    group: str
    topic_id: bytes
    partition: int
