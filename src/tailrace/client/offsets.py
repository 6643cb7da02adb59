"""ListOffsets: first and last offsets, and offsets by timestamp, of many partitions at once."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import Leader, TopicPartition
from tailrace.client.cluster.routing import Answer, Question, ask_leaders
from tailrace.client.errors import ClientError, Refused
from tailrace.client.options import Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
_REPLICA_ID = -1  # we are a consumer
_ISOLATION_SINCE = 2


class Found(NamedTuple):
    """The first record at or after a time. `timestamp` is -1 for EARLIEST and LATEST."""

    offset: int
    timestamp: int


def earliest(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition that can be read."""
    found = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: one.offset for partition, one in found.items() if one is not None}


def latest(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: Isolation | None = None
) -> dict[TopicPartition, int]:
    """The offset after the last record that can be read. With read_committed, that of the first open transaction."""
    found = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation)
    return {partition: one.offset for partition, one in found.items() if one is not None}


def readable_bounds(
    cluster: Cluster, partitions: Collection[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, tuple[int, int]]:
    """The start and the end of each partition, without those that are gone, or whose log cannot be read."""
    starts, ends = (
        ask_leaders(
            cluster, _ReadableOffsets(dict.fromkeys(partitions, at), isolation), partitions, "asking for offsets"
        )
        for at in (EARLIEST, LATEST)
    )
    return {
        partition: (start.offset, end.offset)
        for partition, start in starts.items()
        if start is not None and (end := ends.get(partition)) is not None
    }


def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: Isolation | None = None
) -> dict[TopicPartition, Found | None]:
    """Returns for each partition the first record with a timestamp, in ms, at or after the given time; None if none.

    EARLIEST and LATEST are valid times, too. `isolation` defaults to that of the options.
    """
    if not times:
        return {}
    question = _ListOffsets(times, cluster.options.isolation if isolation is None else isolation)
    return ask_leaders(cluster, question, times, "asking for offsets")


_UNREADABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class _ListOffsets(Question["Found | None"]):
    response = ListOffsetsResponse

    def __init__(self, times: Mapping[TopicPartition, int], isolation: Isolation) -> None:
        self._times = times
        self._isolation = isolation
        self.versions = (_ISOLATION_SINCE if isolation else 0, 0x7FFF)

    def request(
        self, partitions: Sequence[TopicPartition], leaders: dict[TopicPartition, Leader]
    ) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=leaders[partition].epoch,
                    timestamp=self._times[partition],
                )
            )
        return ListOffsetsRequest(
            replica_id=_REPLICA_ID, isolation_level=self._isolation, topics=list(topics.values()), timeout_ms=30_000
        )

    def answers(self, response: ListOffsetsResponse) -> Iterator[Answer[Found | None]]:
        for topic in response.topics:
            for one in topic.partitions:
                found = None if one.offset < 0 else Found(one.offset, one.timestamp)
                yield Answer(TopicPartition(topic.name, one.partition_index), one.error_code, found)

    def failure(self, answer: Answer[Found | None]) -> ClientError | None:
        if answer.code or answer.value is not None or self._times[answer.partition] not in (EARLIEST, LATEST):
            return None
        return Refused(str(answer.partition), ErrorCode.OFFSET_NOT_AVAILABLE)  # every log has a start and an end


class _ReadableOffsets(_ListOffsets):
    """Takes None for an answer of partitions that have none to give."""

    def answers(self, response: ListOffsetsResponse) -> Iterator[Answer[Found | None]]:
        for answer in super().answers(response):
            yield Answer(answer.partition, 0, None) if answer.code in _UNREADABLE else answer

    def failure(self, answer: Answer[Found | None]) -> ClientError | None:
        return None
