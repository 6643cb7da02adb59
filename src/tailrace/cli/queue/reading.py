"""Reads ranges of partitions to their ends, in no group."""

from collections.abc import Iterator
from contextlib import closing

from tailrace.cli.common.client import Message
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.tail import follower

_POLL_SECONDS = 0.2


def messages_in(brokers: Connection, spans: dict[Partition, OffsetRange]) -> Iterator[list[Message]]:
    """Yields committed messages as they come; in the order of their offsets in each partition."""
    consumer = brokers.consumer(follower.properties(follow=False, uncommitted=False))
    with closing(follower.Follower(brokers, consumer, spans, follow=False)) as reading:
        while not reading.is_done:
            if found := reading.read(_POLL_SECONDS):
                yield found
