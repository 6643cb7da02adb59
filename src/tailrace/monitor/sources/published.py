"""Reads the records that a broker or a monitor publishes in its topics: `__tailrace_losses`, `__tailrace_segments` and
others, as any client would.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import OffsetOutOfRange
from tailrace.client.fetch import PartitionReader
from tailrace.client.offsets import earliest, latest
from tailrace.facts import losses
from tailrace.facts.document import UnreadableFact
from tailrace.facts.losses import Loss
from tailrace.records.record import Record, decode_records

T = TypeVar("T")

LOSSES_TOPIC = "__tailrace_losses"
SEGMENTS_TOPIC = "__tailrace_segments"
LAG_TOPIC = "__tailrace_lag"


class TopicReader:
    """Reads a topic of one partition from its start, and on from there with each call of `read`."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(topic, 0)
        self._topic_id: bytes | None = None
        self._position = -1
        self.has_begun_anew = False  # whether the last `read` began at the start of the topic

    def read(self) -> Iterator[Record]:
        """Yields the records up to the end as it is now; none while the topic does not exist."""
        self.has_begun_anew = False
        topic = self._cluster.all_topics().get(self._partition.topic)
        if topic is None:
            self._position = -1
            return
        if topic.topic_id != self._topic_id:
            self._topic_id, self._position = topic.topic_id, -1
        start = earliest(self._cluster, [self._partition])[self._partition]
        end = latest(self._cluster, [self._partition])[self._partition]
        if not 0 <= self._position <= end:
            self._position, self.has_begun_anew = start, True
        try:
            yield from self._read(max(self._position, start), end)
        except OffsetOutOfRange:  # deleted meanwhile: the next call begins anew
            self._position = -1

    def _read(self, start: int, end: int) -> Iterator[Record]:
        for chunk in PartitionReader(self._cluster, self._partition.topic, 0, start, end, topic_id=self._topic_id):
            for position, header in chunk.batches:
                if not header.is_control:
                    yield from (one for one in decode_records(chunk.records, position) if start <= one.offset < end)
        self._position = end


def decoded(records: Iterator[Record], decode: Callable[[bytes], T]) -> Iterator[T]:
    """The values of records. Leaves out those without a value, and those of a later version of the format."""
    for record in records:
        if record.value is not None:
            try:
                yield decode(record.value)
            except UnreadableFact:
                continue


def losses_in_ledger(cluster: Cluster) -> Iterator[Loss]:
    """The entries of the loss ledger, in order; none where the broker keeps none."""
    return decoded(TopicReader(cluster, LOSSES_TOPIC).read(), losses.decode)
