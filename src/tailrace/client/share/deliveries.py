"""The acquired records in a ShareFetch response: decoded, and what is not to be delivered sorted out. Pure.

A response has whole batches, and says which of their offsets were acquired. Offsets without a record (control batches,
compaction) are gaps. A batch that cannot be decoded is rejected: it would fail for each worker. Offsets for which the
response has no bytes are released: nothing says that their records do not exist.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.client.batches import BatchAt, whole_batches
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import ClientError, CorruptRecords
from tailrace.client.share.acknowledgements import Acknowledgement, Outcome, SharePartition
from tailrace.protocol.messages.share_fetch import AcquiredRecords, PartitionData
from tailrace.records.batch import CRC_START
from tailrace.records.checksum import crc32c
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import Record, decode_records

ACQUIRED_MAX = 1_000_000  # offsets in one response; a broker that sends more does not mean it


class Delivery(NamedTuple):
    """A record that was acquired. `attempt` counts its deliveries, this one included, from 1."""

    at: TopicPartition
    partition: SharePartition
    record: Record
    attempt: int

    @property
    def offset(self) -> int:
        return self.record.offset


class Acquired(NamedTuple):
    """The acquired offsets of one partition: those to deliver, and those that are settled without."""

    deliveries: list[Delivery]
    settled: list[Acknowledgement]
    damage: list[ClientError]


def read_acquired(data: PartitionData, at: TopicPartition, partition: SharePartition) -> Acquired:
    found = Acquired([], [], [])
    acquired = data.acquired_records
    if not acquired:
        return found
    records = memoryview(data.records)  # type: ignore[arg-type]
    try:
        batches = whole_batches(records, at, acquired[0].first_offset, acquired[-1].last_offset + 1).batches
    except CorruptRecords as error:
        found.damage.append(error)
        batches = []
    decoded = _Decoded(records, batches, at)
    known_to = batches[-1][1].next_offset if batches else acquired[0].first_offset
    for one in acquired:
        _sort_out(found, one, decoded, known_to, at, partition)
    found.damage.extend(decoded.damage)
    return found


class _Decoded:
    """The records of the batches, and the ranges of those that cannot be read."""

    def __init__(self, records: memoryview, batches: list[BatchAt], at: TopicPartition) -> None:
        self.records: dict[int, Record] = {}
        self.unreadable: list[tuple[int, int]] = []
        self.damage: list[ClientError] = []
        for position, header in batches:
            if header.is_control:
                continue
            try:
                if crc32c(records[position + CRC_START : position + header.size]) != header.crc:
                    raise CorruptBatch("its CRC-32C is wrong")
                self.records.update((record.offset, record) for record in decode_records(records, position))
            except CorruptBatch as error:
                self.unreadable.append((header.base_offset, header.last_offset))
                self.damage.append(CorruptRecords(*at, header.base_offset, str(error)))

    def is_readable(self, offset: int) -> bool:
        return not any(first <= offset <= last for first, last in self.unreadable)


def _sort_out(
    found: Acquired,
    acquired: AcquiredRecords,
    decoded: _Decoded,
    known_to: int,
    at: TopicPartition,
    partition: SharePartition,
) -> None:
    for offset in _offsets(acquired):
        if (record := decoded.records.get(offset)) is not None:
            found.deliveries.append(Delivery(at, partition, record, acquired.delivery_count))
            continue
        outcome = Outcome.RELEASE
        if offset < known_to:
            outcome = Outcome.GAP if decoded.is_readable(offset) else Outcome.REJECT
        _settle(found.settled, partition, offset, outcome)


def _offsets(acquired: AcquiredRecords) -> Iterator[int]:
    count = acquired.last_offset - acquired.first_offset + 1
    return iter(range(acquired.first_offset, acquired.first_offset + min(count, ACQUIRED_MAX)))


def _settle(settled: list[Acknowledgement], partition: SharePartition, offset: int, outcome: Outcome) -> None:
    """Appends to the last range where the offset continues it."""
    last = settled[-1] if settled else None
    if last is not None and last.partition == partition and last.last + 1 == offset and last.outcome is outcome:
        settled[-1] = last._replace(last=offset)
    else:
        settled.append(Acknowledgement(partition, offset, offset, outcome))
