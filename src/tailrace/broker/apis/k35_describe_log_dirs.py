"""DescribeLogDirs (key 35): the directory and the sizes of partitions, and the free disk space.

Behaviour: there is one directory. A partition without records has nothing on disk, and is listed with 0 bytes; one that
does not exist is left out. A thread determines the disk space; if that fails, it is -1. Many partitions are processed
in several turns, so that other clients are served meanwhile.

Versions 1-5.
    2   flexible                                        3   an error for the whole response
    4   the total and the free space of the disk        5   whether a directory takes no new partitions: it does
Not done: offset lag and future logs, as there is one replica of each partition, in one directory.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from tailrace.broker.background.disk_reserve import FreeSpaceJob
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.topics import Topic
from tailrace.log.disk.interface import Space
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

Wanted = tuple[Topic, Iterable[int]]


def describe_log_dirs(
    request: DescribeLogDirsRequest, call: Call, broker: "Broker"
) -> DelayedResponse[DescribeLogDirsResponse]:
    return LogDirsDescription(_wanted(request.topics, broker), broker)


def _wanted(named: list[DescribableLogDirTopic] | None, broker: "Broker") -> Iterator[Wanted]:
    if named is None:
        for topic in list(broker.metadata.topics.values()):
            yield topic, range(topic.partition_count)
        return
    for one in named:
        found = broker.topic(one.topic)
        if found is not None:
            yield found, (index for index in dict.fromkeys(one.partitions) if 0 <= index < found.partition_count)


class LogDirsDescription(DelayedResponse[DescribeLogDirsResponse]):
    """The response: first the sizes, then the disk space that a thread has determined."""

    __slots__ = ("_broker", "_result")

    def __init__(self, wanted: Iterator[Wanted], broker: "Broker") -> None:
        super().__init__()
        self._broker = broker
        self._result = DescribeLogDirsResult(log_dir=broker.directory.path)
        IncrementalResponse(self._add_sizes(wanted), broker.start_job).when_resolved(self._ask_for_room)

    def _add_sizes(self, wanted: Iterator[Wanted]) -> Generator[None, None, None]:
        for topic, indexes in wanted:
            described = DescribeLogDirsTopic(name=topic.name)
            self._result.topics.append(described)
            for index in indexes:
                partition = topic.peek(index)
                size = partition.log.size if partition is not None and partition.log is not None else 0
                described.partitions.append(DescribeLogDirsPartition(partition_index=index, partition_size=size))
                yield

    def _ask_for_room(self, _: None) -> None:
        job = FreeSpaceJob(self._broker.directory)
        self._broker.start_job(job, lambda: self._finish(job.found))

    def _finish(self, space: Space | None) -> None:
        if space is not None:
            self._result.total_bytes, self._result.usable_bytes = space.total, space.free
        self.resolve(DescribeLogDirsResponse(results=[self._result]))


API = Api(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs, frame_bytes_max=1 << 20)
