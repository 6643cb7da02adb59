"""The whole batches in a Fetch response, checked by their headers.

Only headers are read. A broker may truncate the last batch, and the first batch is the one that contains the offset
asked for.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import CorruptRecords
from tailrace.records.batch import CRC_START, HEADER_SIZE, MAGIC, BatchHeader, check_header, read_header
from tailrace.records.checksum import crc32c
from tailrace.records.control import Marker, marker_of
from tailrace.records.errors import CorruptBatch

BatchAt = tuple[int, BatchHeader]  # position in the bytes, header


class Whole(NamedTuple):
    batches: list[BatchAt]  # those with offsets of the range
    cut_size: int  # size of the batch that was truncated; 0 if none was, or its header was, too
    passed_end: bool  # whether the next batch lies after the range


def whole_batches(records: memoryview, partition: TopicPartition, start: int, end: int) -> Whole:
    """Returns the whole batches with offsets from `start` to before `end`.

    Raises CorruptRecords if the batches are not contiguous, or all end before `start`.
    """
    found: list[BatchAt] = []
    position, expected = 0, start
    while position + HEADER_SIZE <= len(records):
        header = _header(records, position, partition, expected)
        if header.base_offset >= end:
            return Whole(found, 0, True)
        if position + header.size > len(records):
            return Whole(found, header.size, False)
        if header.last_offset >= start:
            if found and header.base_offset < expected:
                why = f"a batch at {header.base_offset} follows one that ends at {expected - 1}"
                raise CorruptRecords(*partition, expected, why)
            found.append((position, header))
            expected = header.next_offset
        position += header.size
    if position and not found:
        raise CorruptRecords(*partition, start, "all batches in the response end before it")
    return Whole(found, 0, expected >= end)


def _header(records: memoryview, position: int, partition: TopicPartition, offset: int) -> BatchHeader:
    header = read_header(records, position)
    if 0 <= header.magic < MAGIC:
        why = f"records in the format v{header.magic} of Kafka before 0.11, which cannot be read here"
        raise CorruptRecords(*partition, offset, why)
    try:
        check_header(header)
    except CorruptBatch as error:
        raise CorruptRecords(*partition, offset, str(error)) from None
    return header


def check_crcs(records: memoryview, batches: list[BatchAt], partition: TopicPartition) -> None:
    """Raises CorruptRecords unless the CRC of each is right."""
    for position, header in batches:
        computed = crc32c(records[position + CRC_START : position + header.size])
        if computed != header.crc:
            why = f"CRC-32C is {computed:#010x} where the header says {header.crc:#010x}"
            raise CorruptRecords(*partition, header.base_offset, why)


def committed_batches(
    records: memoryview, batches: Sequence[BatchAt], aborted: Sequence[tuple[int, int]]
) -> list[BatchAt]:
    """Returns the batches that hold records, and no aborted ones. `aborted` is what the Fetch returned for them: ids of
    producers, each with the first offset of an aborted transaction.
    """
    begins = sorted(aborted, key=lambda one: one[1])
    open_now: set[int] = set()  # producers, amid a transaction that was aborted
    found = []
    for position, header in batches:
        while begins and begins[0][1] <= header.last_offset:
            open_now.add(begins.pop(0)[0])
        if header.is_control:
            if header.producer_id in open_now and marker_of(records, position)[0] is Marker.ABORT:
                open_now.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_now):
            found.append((position, header))
    return found
