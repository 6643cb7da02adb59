"""Waits until a partition has more records: one long poll, at all leaders at once.

The broker keeps a Fetch for at least one byte until that byte exists. The records in the response are discarded; only
the end offset of each partition is used.
"""

import selectors
import time
from collections.abc import Mapping

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, ConnectionLost, OffsetOutOfRange, Refused, refusal
from tailrace.client.fetch_requests import FetchTarget, fetch_request, partitions_in, version_max
from tailrace.client.net.connection import Connection, Pending
from tailrace.client.offsets import earliest, latest
from tailrace.client.options import Address, Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData

TIMEOUT_S_MAX = 3600.0
_ID_ERRORS = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


def wait_for_more(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    timeout_s: float,
    *,
    topic_ids: Mapping[str, bytes] | None = None,
) -> dict[TopicPartition, int]:
    """Returns the end offsets of partitions that have records at or after their position; {} at the timeout.

    The result may be incomplete: it has the partitions of the first leader that responds. Raises OffsetOutOfRange for a
    position that was deleted, and TopicRecreated for a topic with another id. An unreachable leader is retried for the
    retry timeout of the options, not for `timeout`.
    """
    if not positions:
        return {}
    retry = cluster.retry("waiting for records")
    end = time.monotonic() + min(timeout_s, TIMEOUT_S_MAX)
    while True:
        wait = _Wait(cluster, positions, topic_ids or {}, retry)
        try:
            found = wait.run(end)
        finally:
            wait.close()
        if found or (wait.trouble is None and time.monotonic() >= end):
            return found
        if wait.trouble is not None:
            retry.pause(wait.trouble)
            cluster.refresh({partition.topic for partition in positions}, retry)
        else:
            retry.progress()


class _Wait:
    """One round: a Fetch to each leader, and the first responses."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], ids: Mapping[str, bytes], retry: Retry
    ) -> None:
        self.trouble: ClientError | None = None
        self._cluster = cluster
        self._positions = positions
        self._ids = ids
        self._retry = retry
        self._found: dict[TopicPartition, int] = {}
        self._selector = selectors.DefaultSelector()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._cluster.pool.give_back(key.data[0])
        self._selector.close()

    def run(self, end: float) -> dict[TopicPartition, int]:
        for address, targets in self._by_leader().items():
            self._send(address, targets, end)
        give_up = end + self._cluster.options.request_timeout_s
        while not self._found and self.trouble is None and self._selector.get_map():
            ready = self._selector.select(max(0.0, give_up - time.monotonic()))
            if not ready:
                self.trouble = ConnectionLost("a leader", "does not respond to a Fetch in time")
            for key, _ in ready:
                self._selector.unregister(key.fileobj)
                self._receive(*key.data)
        return self._found

    def _by_leader(self) -> dict[Address, list[FetchTarget]]:
        grouped: dict[Address, list[FetchTarget]] = {}
        for partition, offset in sorted(self._positions.items()):
            expected = self._ids.get(partition.topic)
            topic = self._cluster.topic(partition.topic, expect_id=expected)
            leader = self._cluster.leader(partition, self._retry)
            if leader is None:
                self.trouble = Refused(str(partition), ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                target = FetchTarget(partition, expected or topic.topic_id, offset, leader.epoch, 1)
                grouped.setdefault(leader.address, []).append(target)
        return grouped

    def _send(self, address: Address, targets: list[FetchTarget], end: float) -> None:
        wait_ms = max(0, int((end - time.monotonic()) * 1000))
        isolation = self._cluster.options.isolation
        request = fetch_request(targets, isolation, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1)
        try:
            connection = self._cluster.take(address, self._retry)
        except ConnectionLost as error:
            self.trouble = error
            return
        try:
            deadline = self._retry.request_deadline()
            pending = connection.send(request, FetchResponse, deadline, at_most=version_max(targets))
        except ConnectionLost as error:
            self.trouble = error
        except BaseException:
            self._cluster.pool.give_back(connection)
            raise
        else:
            self._selector.register(connection, selectors.EVENT_READ, (connection, pending, targets))

    def _receive(self, connection: Connection, pending: Pending[FetchResponse], targets: list[FetchTarget]) -> None:
        try:
            response = connection.receive(pending, self._retry.request_deadline())
            if response.error_code:
                raise refusal("waiting for records", response.error_code)
            for one, data in partitions_in(response, pending.version, targets, connection):
                self._take(one, data)
        except ClientError as error:
            if not error.is_passing:
                raise
            self.trouble = error
        finally:
            self._cluster.pool.give_back(connection)

    def _take(self, one: FetchTarget, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.trouble = out_of_range(self._cluster, one.partition, one.offset) or Refused(
                str(one.partition), ErrorCode.OFFSET_NOT_AVAILABLE
            )
            return
        if data.error_code in _ID_ERRORS:
            self._cluster.topic(one.partition.topic, expect_id=self._ids.get(one.partition.topic), fresh=True)
        if data.error_code:
            raise refusal(str(one.partition), data.error_code)
        committed = self._cluster.options.isolation is Isolation.READ_COMMITTED
        end = data.last_stable_offset if committed else data.high_watermark
        if end > one.offset:
            self._found[one.partition] = end


def out_of_range(cluster: Cluster, partition: TopicPartition, offset: int) -> OffsetOutOfRange | None:
    """Returns the error with the offsets that exist; None if `offset` exists after all."""
    first = earliest(cluster, [partition])[partition]
    last = latest(cluster, [partition], Isolation.READ_UNCOMMITTED)[partition]
    if first <= offset <= last:
        return None
    return OffsetOutOfRange(partition.topic, partition.partition, offset, first, last)
