"""Fetch targets: the partitions that a Fetch asks for, resolved to partitions and logs, or to errors."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.partition import Partition
from tailrace.broker.fetch.sessions import RequestedPartition, TopicKey
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


class FetchTarget(NamedTuple):
    """One partition that a Fetch asks for: the partition, with its log if it has one yet, or an error."""

    topic: TopicKey
    wanted: FetchPartition
    partition: Partition | None
    log: Log | None
    error: int


def find_targets(wanted: Iterable[RequestedPartition], by_id: bool, broker: "Broker") -> list[FetchTarget]:
    """Resolves the partitions of a request, on the broker's thread. A thread that reads the targets needs nothing else
    that could change meanwhile.
    """
    metadata = broker.metadata
    targets = []
    for key, one in wanted:
        topic = metadata.topics_by_id.get(key) if isinstance(key, bytes) else metadata.topics.get(key)
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            targets.append(FetchTarget(key, one, None, None, unknown))
            continue
        partition = topic.partition(one.partition)
        if partition is None:
            targets.append(FetchTarget(key, one, None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            error = check_partition(partition, one.current_leader_epoch, broker.leader_epoch(partition))
            targets.append(FetchTarget(key, one, partition, partition.log, error))
    return targets


def check_partition(partition: Partition, asked: int, current: int) -> int:
    """Returns an error if the partition cannot be read, or the leader epoch differs from the client's."""
    if partition.unavailable is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return check_leader_epoch(asked, current)


def check_leader_epoch(asked: int, current: int) -> int:
    """Returns an error if the client's epoch is older or newer than the current one; -1 is unknown to the client."""
    if asked < 0 or asked == current:
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
