"""The markers that end a transaction in its partitions: appended, and found again after a crash.

A marker is written again where it may be missing: after a crash, or when a backup is restored. In a log that has it,
that changes nothing, unless the next transaction of the same producer has begun there: the marker would end that. So it
is looked for first, by the time of its decision, which it carries.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.metadata.internal_topics import batches_in
from tailrace.broker.transactions.state import ProducerIdentity, Transaction
from tailrace.log.layout.errors import LogError, without_frames
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.log.state.producer_state import NO_OFFSET
from tailrace.records.control import Marker, encode_marker, marker_of

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

APPEND_TIME_MARGIN_MS = 600_000  # a topic may have replaced the time of a batch by that of its append


def append_marker(
    broker: "Broker",
    partition: Partition,
    producer: ProducerIdentity,
    marker: Marker,
    coordinator_epoch: int,
    decided_ms: int,
    now_ms: int,
) -> None:
    """Appends a marker to a partition with a log, and requests a flush. Raises LogError, Refused."""
    encoded = encode_marker(marker, *producer, coordinator_epoch, decided_ms)
    if partition.topic.name == OFFSETS_TOPIC:
        broker.groups.end_transaction(partition.index, producer.producer_id, marker, encoded)
        return
    log = broker.log_for_append(partition)
    try:
        at = log.append(encoded, now_ms).base_offset
    except LogError:
        broker.notice(log)
        raise
    broker.appended(partition, log, now_ms)
    broker.backlog.gates.appended(partition, at, at + 1, len(encoded), now_ms)
    broker.flushes.request(log)


class SoughtMarker(NamedTuple):
    """A marker that a log may have, before its producer's transaction that is open there now."""

    transactional_id: str
    name: TopicPartition
    log: Log
    transaction: Transaction
    before: int


def sought_markers(broker: "Broker", transactional_id: str, transaction: Transaction) -> Iterator[SoughtMarker]:
    """Yields the markers of a decided transaction that may be in logs where its producer has a transaction open."""
    for name in transaction.partitions:
        partition = broker.partition(*name)
        log = partition.log if partition is not None else None
        producer = log.producers.producers.get(transaction.producer_id) if log is not None else None
        if log is not None and producer is not None and producer.transaction_start != NO_OFFSET:
            yield SoughtMarker(transactional_id, name, log, transaction, producer.transaction_start)


class MarkerSearch:
    """A job that looks for markers; `found` has those that the logs have."""

    def __init__(self, sought: list[SoughtMarker]) -> None:
        self._sought = sought
        self.found: list[SoughtMarker] = []
        self.error: Exception | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._sought)

    def run(self) -> None:
        try:
            self.found = [one for one in self._sought if _has_marker(one)]
        except (LogError, OSError) as error:
            self.error = without_frames(error)

    def finish(self) -> None:
        pass


def _has_marker(sought: SoughtMarker) -> bool:
    transaction = sought.transaction
    wanted = transaction.producer_id, transaction.epoch, transaction.updated_ms
    first = sought.log.find_time(transaction.updated_ms - APPEND_TIME_MARGIN_MS)
    if first is None:
        return False
    return any(
        (header.producer_id, header.producer_epoch, header.base_timestamp) == wanted
        and header.is_control
        and marker_of(data, position)[0] is not None
        for data, position, header in batches_in(sought.log, from_offset=first.offset, before=sought.before)
    )
