"""Reads a range of a partition as whole batches, neither copied nor decoded, with one fetch ahead.

While the caller processes the records of one response, the next fetch is already in flight. Progress is the last offset
in each batch's header, never a count: compaction leaves gaps between records and batches.
"""

import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from tailrace.client.batches import BatchAt, Whole, check_crcs, whole_batches
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import BadAnswer, ClientError, CorruptRecords, EndNotReached, Refused, refusal
from tailrace.client.fetch_requests import IDS_SINCE, FetchTarget, fetch_request, partitions_in, version_max
from tailrace.client.long_poll import out_of_range
from tailrace.client.net.connection import Connection, Pending
from tailrace.client.options import Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData

EMPTY_MAX = 3  # so many empty responses inside a readable range count as a gap
BATCH_BYTES_MAX = 1 << 30
THROTTLE_S_MAX = 30.0
WAIT_MS_MIN = 10  # so that a reader at the end does not fetch in a busy loop

_ID_ERRORS = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class Chunk(NamedTuple):
    """The batches of one response that overlap the range.

    The first batch may begin before the range, and the last one may end after it: the caller drops records outside.
    `aborted` lists producer ids with the first offset of an aborted transaction, if only committed records are read.
    The caller drops their records up to the producer's next abort marker.
    """

    records: memoryview
    batches: list[BatchAt]
    aborted: list[tuple[int, int]]


class _Ahead(NamedTuple):
    connection: Connection
    pending: Pending[FetchResponse]
    target: FetchTarget


class PartitionReader:
    """Iterates over the chunks from offset `start` to before `end`. The caller reads it to the end, or closes it.

    `topic_id` is the id of the topic that the offsets belong to: another topic of the same name raises TopicRecreated.
    `gap` is set if the last offsets of the range are readable but have no records: compaction removed them.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, start: int, end: int, *, topic_id: bytes | None = None
    ) -> None:
        self.partition = TopicPartition(topic, partition)
        self.position = start  # the next offset to deliver
        self.end = end
        self.gap: tuple[int, int] | None = None
        self._cluster = cluster
        self._isolation = cluster.options.isolation
        self._expected_id = topic_id
        self._retry = cluster.retry(f"reading {self.partition}")
        self._ahead: _Ahead | None = None
        self._connection: Connection | None = None
        self._max_bytes = cluster.options.max_partition_fetch_bytes
        self._wait_s = cluster.options.fetch_max_wait_ms / 1000
        self._empty = 0
        self._by_name = False

    def __iter__(self) -> Iterator[Chunk]:
        self._retry.progress()
        try:
            while self.position < self.end:
                chunk = self._next_chunk()
                if chunk is not None:
                    yield chunk
                    self._retry.progress()  # the caller's own time does not count
            if self._by_name and self._expected_id is not None:
                self._topic_id(fresh=True)  # the topic may have been recreated while we read
        finally:
            self.close()

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Returns its connection to the pool. The next user drops a response that is still to come."""
        connection, self._connection, self._ahead = self._connection, None, None
        if connection is not None:
            self._cluster.pool.give_back(connection)

    def _next_chunk(self) -> Chunk | None:
        """Returns the next chunk; None if this response had none. Waits after retriable errors."""
        try:
            ahead = self._ahead or self._send(self.position)
            self._ahead = None
            response = ahead.connection.receive(ahead.pending, self._retry.request_deadline(self._wait_s))
            return self._read(response, ahead)
        except ClientError as error:
            self.close()
            self._retry.pause(error)
            self._cluster.refresh([self.partition.topic], self._retry)
            return None
        except BaseException:
            self.close()
            raise

    # Requests

    def _topic_id(self, fresh: bool = False) -> bytes:
        found = self._cluster.topic(self.partition.topic, expect_id=self._expected_id, fresh=fresh)
        if self._expected_id is None and found.has_id:
            self._expected_id = found.topic_id  # the id must not change from here on
        return found.topic_id

    def _send(self, position: int) -> _Ahead:
        options = self._cluster.options
        topic_id = self._topic_id()
        leader = self._cluster.leader(self.partition, self._retry)
        if leader is None:
            raise Refused(str(self.partition), ErrorCode.LEADER_NOT_AVAILABLE)
        if self._connection is None or self._connection.address != leader.address:
            self.close()
            self._connection = self._cluster.take(leader.address, self._retry)
        target = FetchTarget(self.partition, topic_id, position, leader.epoch, self._max_bytes)
        request = fetch_request(
            [target],
            self._isolation,
            max_wait_ms=max(WAIT_MS_MIN, options.fetch_max_wait_ms),
            min_bytes=options.fetch_min_bytes,
            max_bytes=max(options.fetch_max_bytes, self._max_bytes),
        )
        deadline = self._retry.request_deadline()
        pending = self._connection.send(request, FetchResponse, deadline, at_most=version_max([target]))
        self._by_name = pending.version < IDS_SINCE
        return _Ahead(self._connection, pending, target)

    # Responses

    def _read(self, response: FetchResponse, ahead: _Ahead) -> Chunk | None:
        if response.error_code:
            raise refusal(self._retry.doing, response.error_code)
        answered = list(partitions_in(response, ahead.pending.version, [ahead.target], ahead.connection))
        if len(answered) != 1:
            raise BadAnswer(ahead.connection.name, f"a Fetch of {self.partition} has {len(answered)} answers")
        data = answered[0][1]
        self._check_code(data)
        records = memoryview(data.records or b"")  # type: ignore[arg-type]
        whole = whole_batches(records, self.partition, self.position, self.end)
        if whole.batches:
            return self._deliver(records, whole, data)
        if whole.passed_end:
            self.position = self.end  # compaction removed the records in between
        elif len(records):
            self._ask_for_more_bytes(whole.cut_size)
        elif response.throttle_time_ms:
            time.sleep(min(response.throttle_time_ms / 1000, THROTTLE_S_MAX))
        else:
            self._nothing_came(data)
        return None

    def _deliver(self, records: memoryview, whole: Whole, data: PartitionData) -> Chunk:
        batches = whole.batches
        position = self.end if whole.passed_end else batches[-1][1].next_offset
        if position < self.end:
            self._ahead = self._send(position)
        if self._cluster.options.check_crcs:
            check_crcs(records, batches, self.partition)
        self.position = position
        self._empty = 0
        start, (last, header) = batches[0][0], batches[-1]
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        return Chunk(records[start : last + header.size], [(at - start, one) for at, one in batches], aborted)

    def _check_code(self, data: PartitionData) -> None:
        """Raises the broker's error; retriable errors are retried."""
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            lost = out_of_range(self._cluster, self.partition, self.position)
            raise lost or Refused(str(self.partition), ErrorCode.OFFSET_NOT_AVAILABLE)
        if code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecords(*self.partition, self.position, "the broker reports it (CORRUPT_MESSAGE)")
        if code in _ID_ERRORS:
            self._topic_id(fresh=True)
        if code:
            raise refusal(self._retry.doing, code)

    def _ask_for_more_bytes(self, size: int) -> None:
        """Raises the fetch size after a truncated batch: old brokers truncate one larger than the fetch size."""
        if size > BATCH_BYTES_MAX or self._max_bytes >= BATCH_BYTES_MAX:
            raise CorruptRecords(*self.partition, self.position, f"a batch of {size} bytes is always truncated")
        self._max_bytes = min(BATCH_BYTES_MAX, max(size, self._max_bytes * 2))

    def _nothing_came(self, data: PartitionData) -> None:
        """Handles an empty response: the end has not been written yet, or compaction removed the last records."""
        committed = self._isolation is Isolation.READ_COMMITTED
        readable = data.last_stable_offset if committed else data.high_watermark
        if readable >= self.end:
            self._empty += 1
            if self._empty >= EMPTY_MAX:
                self.gap = (self.position, self.end)
                self.position = self.end
        elif self._retry.elapsed > self._cluster.options.retry_timeout_s:
            raise EndNotReached(*self.partition, self.position, self.end, readable)
