"""One Fetch of one partition from an offset on: what is there now, without waiting for more.

For readers that look at many partitions now and then; `fetch` reads a range.
"""

from typing import NamedTuple

from tailrace.client.batches import BatchAt, check_crcs, committed_batches, whole_batches
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import BadAnswer, ClientError, CorruptRecords, Refused, refusal
from tailrace.client.fetch_requests import FetchTarget, fetch_request, partitions_in, version_max
from tailrace.client.long_poll import out_of_range
from tailrace.client.options import Isolation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData

BATCH_BYTES_MAX = 1 << 30
EMPTY_MAX = 3  # so many empty responses inside a readable range count as a gap
_END = 1 << 63
_ID_ERRORS = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class Fetched(NamedTuple):
    """`batches` are those that count: they have records, which are committed if only such are read. `next_offset` is
    where the next Fetch begins, and `end` the offset after the last record that can be read.
    """

    records: memoryview
    batches: list[BatchAt]
    next_offset: int
    end: int


def fetch_once(cluster: Cluster, partition: TopicPartition, offset: int, max_bytes: int) -> Fetched:
    """Returns whole batches from `offset` on, of about `max_bytes`; at least one, if there is one. The first one may
    begin before `offset`. Offsets whose records compaction has removed are passed over.

    Raises OffsetOutOfRange for an offset that was deleted, or lies after the end.
    """
    retry = cluster.retry(f"reading {partition}")
    ends: list[int] = []  # of responses without records
    while True:
        try:
            data = _ask(cluster, partition, offset, max_bytes, retry)
            records = memoryview(data.records or b"")  # type: ignore[arg-type]
            whole = whole_batches(records, partition, offset, _END)
            end = _readable_end(cluster, data)
            if whole.batches or (not len(records) and end <= offset):
                next_offset = whole.batches[-1][1].next_offset if whole.batches else offset
                return Fetched(records, _counted(cluster, partition, data, records, whole.batches), next_offset, end)
            if not len(records):  # there was something to read already when an earlier response had nothing
                ends.append(end)
                if len(ends) >= EMPTY_MAX:
                    return Fetched(records, [], ends[0], end)
                continue
            if not max_bytes < whole.cut_size <= BATCH_BYTES_MAX:
                raise CorruptRecords(*partition, offset, f"a batch of {whole.cut_size} bytes is always truncated")
            max_bytes = whole.cut_size  # old brokers truncate a batch that is larger than asked for
        except ClientError as error:
            retry.pause(error)
            cluster.refresh([partition.topic], retry)


def _ask(cluster: Cluster, partition: TopicPartition, offset: int, max_bytes: int, retry: Retry) -> PartitionData:
    topic = cluster.topic(partition.topic)
    leader = cluster.leader(partition, retry)
    if leader is None:
        raise Refused(str(partition), ErrorCode.LEADER_NOT_AVAILABLE)
    targets = [FetchTarget(partition, topic.topic_id, offset, leader.epoch, max_bytes)]
    request = fetch_request(targets, cluster.options.isolation, max_wait_ms=0, min_bytes=0, max_bytes=max_bytes)
    deadline = retry.request_deadline()
    with cluster.pool.lease(leader.address, deadline) as connection:
        pending = connection.send(request, FetchResponse, deadline, at_most=version_max(targets))
        response = connection.receive(pending, deadline)
        if response.error_code:
            raise refusal(retry.doing, response.error_code)
        if response.throttle_time_ms and not any(data.records for one in response.responses for data in one.partitions):
            raise Refused(str(partition), ErrorCode.THROTTLING_QUOTA_EXCEEDED)  # there may be records nevertheless
        found = [data for _, data in partitions_in(response, pending.version, targets, connection)]
        if len(found) != 1:
            raise BadAnswer(connection.name, f"a Fetch of {partition} has {len(found)} answers")
    _check_code(cluster, partition, offset, found[0].error_code)
    return found[0]


def _check_code(cluster: Cluster, partition: TopicPartition, offset: int, code: int) -> None:
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise out_of_range(cluster, partition, offset) or Refused(str(partition), ErrorCode.OFFSET_NOT_AVAILABLE)
    if code == ErrorCode.CORRUPT_MESSAGE:
        raise CorruptRecords(*partition, offset, "the broker reports it (CORRUPT_MESSAGE)")
    if code in _ID_ERRORS:
        cluster.topic(partition.topic, fresh=True)
        raise Refused(str(partition), ErrorCode.LEADER_NOT_AVAILABLE)  # to be tried again, with the new id
    if code:
        raise refusal(f"reading {partition}", code)


def _readable_end(cluster: Cluster, data: PartitionData) -> int:
    is_committed = cluster.options.isolation is Isolation.READ_COMMITTED
    return data.last_stable_offset if is_committed and data.last_stable_offset >= 0 else data.high_watermark


def _counted(
    cluster: Cluster, partition: TopicPartition, data: PartitionData, records: memoryview, batches: list[BatchAt]
) -> list[BatchAt]:
    if cluster.options.check_crcs:
        check_crcs(records, batches, partition)
    is_committed = cluster.options.isolation is Isolation.READ_COMMITTED
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    return committed_batches(records, batches, aborted if is_committed else ())
