"""The whole batches in a Fetch response, checked by their headers.

Only headers are read. A broker may cut the last batch short, and begins with the whole batch that has the offset asked
for.
"""

from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import CorruptRecords
from tailrace.records.batch import CRC_START, HEADER_SIZE, MAGIC, BatchHeader, check_header, read_header
from tailrace.records.checksum import crc32c
from tailrace.records.errors import CorruptBatch

BatchAt = tuple[int, BatchHeader]  # with its position in the bytes


class Whole(NamedTuple):
    batches: list[BatchAt]  # those with offsets of the range
    cut_size: int  # of the batch that was cut short, 0 where none was or its header was cut, too
    passed_end: bool  # whether what follows them lies behind the range


def whole_batches(records: memoryview, partition: TopicPartition, start: int, end: int) -> Whole:
    """The whole batches with offsets from `start` to before `end`.

    Raises CorruptRecords where they do not follow each other, or all come before the start.
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
                why = f"a batch at {header.base_offset} behind one that ends at {expected - 1}"
                raise CorruptRecords(*partition, expected, why)
            found.append((position, header))
            expected = header.next_offset
        position += header.size
    if position and not found:
        raise CorruptRecords(*partition, start, "the batches that come end before it")
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
