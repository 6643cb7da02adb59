"""Fetch requests without a session, by topic id where both sides know it, and their responses."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import BadAnswer
from tailrace.client.net.connection import Connection
from tailrace.client.options import Isolation
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

IDS_SINCE = 13


class FetchTarget(NamedTuple):
    partition: TopicPartition
    topic_id: bytes  # zeros if unknown
    offset: int
    leader_epoch: int
    max_bytes: int


def version_max(targets: Sequence[FetchTarget]) -> int:
    """The latest version of Fetch that all of these targets can use."""
    return IDS_SINCE - 1 if any(one.topic_id == ZERO_UUID for one in targets) else 0x7FFF


def fetch_request(
    targets: Sequence[FetchTarget], isolation: Isolation, *, max_wait_ms: int, min_bytes: int, max_bytes: int
) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for one in targets:
        name = one.partition.topic
        topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=one.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=one.partition.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                partition_max_bytes=one.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=list(topics.values()),
    )


def partitions_in(
    response: FetchResponse, version: int, targets: Sequence[FetchTarget], connection: Connection
) -> Iterator[tuple[FetchTarget, PartitionData]]:
    """Returns the response's data for each requested partition. Raises BadAnswer if it has any other partition."""
    by_id = version >= IDS_SINCE
    asked = {(one.topic_id if by_id else one.partition.topic, one.partition.partition): one for one in targets}
    for topic in response.responses:
        for data in topic.partitions:
            one = asked.get((topic.topic_id if by_id else topic.topic, data.partition_index))
            if one is None:
                connection.close()
                raise BadAnswer(
                    connection.name, f"it fetched partition {data.partition_index} of a topic that was not asked for"
                )
            yield one, data
