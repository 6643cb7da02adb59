"""Sizes of partitions on disk and of the disks themselves, from DescribeLogDirs."""

from typing import NamedTuple

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.options import Address
from tailrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


class LogDir(NamedTuple):
    """A log directory of one broker. `total` and `usable` are bytes of its file system, None if unknown."""

    broker: Address
    path: str
    sizes: dict[TopicPartition, int]
    total: int | None
    usable: int | None


def log_dirs(cluster: Cluster) -> list[LogDir]:
    """All log directories of all brokers, without those that are offline."""
    retry = cluster.retry("asking for the sizes of logs")
    cluster.refresh([], retry)
    return [
        LogDir(
            address,
            one.log_dir,
            {
                TopicPartition(topic.name, partition.partition_index): partition.partition_size
                for topic in one.topics
                for partition in topic.partitions
                if not partition.is_future_key
            },
            one.total_bytes if one.total_bytes >= 0 else None,
            one.usable_bytes if one.usable_bytes >= 0 else None,
        )
        for address in cluster.brokers
        for one in cluster.ask_at(address, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, retry).results
        if not one.error_code
    ]
