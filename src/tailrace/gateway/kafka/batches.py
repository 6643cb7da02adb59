"""Records as batches: numbered, dated, and of a bounded size. Pure, but for the clock."""

import time
from collections.abc import Iterator, Sequence

from tailrace.records.record import Record

BATCH_BYTES = 256 << 10  # of several messages; a single one may be larger
RECORD_OVERHEAD = 32  # bytes of a record, and of a header, besides their contents, at most


def batches_of(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yields the records of each batch, numbered from 0, with the present time where they have none."""
    now_ms = time.time_ns() // 1_000_000
    batch: list[Record] = []
    size = 0
    for record in records:
        size += size_of(record)
        if batch and size > BATCH_BYTES:
            yield batch
            batch, size = [], size_of(record)
        timestamp = record.timestamp if record.timestamp >= 0 else now_ms
        batch.append(record._replace(offset=len(batch), timestamp=timestamp))
    if batch:
        yield batch


def size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") + RECORD_OVERHEAD for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD


def placed_by_partition(partitions: Sequence[int]) -> dict[int, list[int]]:
    """Returns the numbers of the messages that go to each partition, in order."""
    numbers: dict[int, list[int]] = {}
    for number, partition in enumerate(partitions):
        numbers.setdefault(partition, []).append(number)
    return numbers
