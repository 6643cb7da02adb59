"""Requests about share groups, which confluent-kafka has not, and the clients behind `work` and `redrive`.

Beside `common.admin_requests`, the only module of the command line that imports our private client.
"""

from collections.abc import Iterable, Mapping

from tailrace.cli.common.admin_requests import AdminRequests, ShareGroup, TopicPartition, failures
from tailrace.client import groups
from tailrace.client.errors import ClientError
from tailrace.client.groups import Committed
from tailrace.client.share import offsets as share_offsets
from tailrace.client.share.acknowledgements import Outcome
from tailrace.client.share.consumer import ShareConsumer
from tailrace.client.share.deliveries import Delivery
from tailrace.client.share.holdings import Result
from tailrace.client.share.offsets import QueueFacts, ShareOffset
from tailrace.client.transactions import TransactionalProducer

__all__ = [
    "ClientError",
    "Committed",
    "Delivery",
    "Outcome",
    "QueueFacts",
    "QueueRequests",
    "Result",
    "ShareConsumer",
    "ShareGroup",
    "ShareOffset",
    "TopicPartition",
    "TransactionalProducer",
    "failures",
]


class QueueRequests(AdminRequests):
    """Closed by `with`, as it keeps connections."""

    def offsets(self, name: str, *, states_max: int = 0) -> dict[TopicPartition, ShareOffset]:
        with failures():
            return share_offsets.offsets(self._cluster, name, states_max=states_max)

    def move(self, name: str, starts: Mapping[TopicPartition, int], *, is_purge: bool = False) -> None:
        """Sets where the group starts, and makes the group if there is none."""
        with failures():
            share_offsets.alter(self._cluster, name, starts, is_purge=is_purge)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with failures():
            return {at: one.offset for at, one in groups.committed(self._cluster, group, partitions).items()}

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """Fences the producer before it. Its errors are to become a Failure by `failures`."""
        with failures():
            return TransactionalProducer(self._cluster, transactional_id)

    def consumer(self, group: str, topic: str) -> ShareConsumer:
        return ShareConsumer(self._cluster.options, group, [topic], renews=True)
