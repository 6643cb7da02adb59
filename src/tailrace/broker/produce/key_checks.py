"""Checks that every record of a batch for a compacted topic has a key: compaction would lose a record without one.

No other check decodes records. A small batch is checked at once. A larger one goes through the queues of
`recompression`, where it keeps its place, and a thread checks it.

Records are decoded in slices. A slice bounds how long the compiled decoder keeps other threads from running, and how
much is decoded at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.transactions.admission import ProducerTransaction
from tailrace.protocol.errors import ErrorCode
from tailrace.records import batch
from tailrace.records.batch import HEADER_SIZE, BatchHeader, Buffer
from tailrace.records.compression import DecompressionBudget, decompress
from tailrace.records.decoders import RECORD_SIZE_MIN, Row, best_decoder, decode_with_python, read_varint
from tailrace.records.errors import CorruptRecords, TooLarge

DECODED_RECORDS_MAX = 50_000  # in a batch
DECODED_BYTES_MAX = 16 << 20  # in a batch
SLICE_RECORDS_MAX = 1_000  # of less than a microsecond each
SLICE_BYTES_MAX = 64 << 10  # two bytes may be a header, of a tenth of a microsecond
REQUEST_RECORDS_MAX = 500_000  # in a request: less than half a second of a thread's time
RECORD_ERRORS_MAX = 1_000  # in a response; one is enough to make a client fail all of a batch


class ProduceBudget(DecompressionBudget):
    """What the batches of one request may cost, all together, and how long its response has to wait. The broker's
    thread alone counts records.
    """

    __slots__ = (
        "bytes_at_once",
        "delay_ms",
        "may_refuse",
        "record_errors",
        "records",
        "records_at_once",
        "transaction",
    )

    def __init__(self, transaction: ProducerTransaction, *, may_refuse: bool = True) -> None:
        super().__init__()
        self.transaction = transaction
        self.may_refuse = may_refuse  # not with acks=0: there is no response
        self.delay_ms = 0  # of the response: a named group is far behind
        self.records = REQUEST_RECORDS_MAX  # whose keys may be checked
        self.records_at_once = SLICE_RECORDS_MAX  # of these, on the broker's thread
        self.bytes_at_once = SLICE_BYTES_MAX
        self.record_errors = RECORD_ERRORS_MAX  # that the response may still list

    def admit(self, delay_ms: int) -> None:
        """Notes that an append makes the response wait. Of several partitions the longest delay counts."""
        self.delay_ms = max(self.delay_ms, delay_ms)


class KeysMissing(Refused):
    """Records without a key, for a topic that is compacted by key; `indexes` are their positions in the batch."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, "records for a compacted topic need a key")
        self.indexes = indexes


def check_keys(records: Buffer, header: BatchHeader, budget: ProduceBudget) -> bool:
    """Checks the keys of a small batch. Returns whether a thread must check them instead.

    Raises Refused (KeysMissing if keys are missing), CorruptBatch.
    """
    count = header.record_count
    if count > DECODED_RECORDS_MAX:  # clients split a batch that is too large, and try again
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch for a compacted topic has at most {DECODED_RECORDS_MAX} records"
        )
    if count > budget.records:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a request has at most {REQUEST_RECORDS_MAX} records for compacted topics. Send fewer of them in one",
        )
    budget.records -= max(count, 0)  # the header is not checked yet
    if count > budget.records_at_once or len(records) > budget.bytes_at_once:
        return True
    try:
        opened = open_batch(records, budget.bytes_at_once, budget)
    except TooLarge:
        budget.bytes_at_once = 0  # the attempt has used it up
        return True
    budget.records_at_once -= count
    budget.bytes_at_once -= len(opened.data)
    if missing := missing_keys(opened):
        raise KeysMissing(missing)
    return False


class OpenedBatch(NamedTuple):
    """The header of an intact batch, and its records decompressed."""

    header: BatchHeader
    data: bytes


def open_batch(
    records: Buffer, limit: int = DECODED_BYTES_MAX, budget: DecompressionBudget | None = None
) -> OpenedBatch:
    """Raises CorruptBatch, and TooLarge where the records take more than `limit` bytes, or than `budget` allows."""
    header = batch.check(records)
    payload: Buffer = memoryview(records)[HEADER_SIZE : header.size]
    if header.record_count or payload:  # a batch without records has nothing to decompress
        payload = decompress(header.codec, payload, limit, budget)
    if header.record_count * RECORD_SIZE_MIN > len(payload):
        raise CorruptRecords(f"{header.record_count} records in {len(payload)} bytes")
    return OpenedBatch(header, bytes(payload))


def missing_keys(opened: OpenedBatch) -> list[int]:
    """The indexes of the records without a key. Raises CorruptRecords unless every byte belongs to a legal record, and
    offsets rise and lie inside the batch.
    """
    header, _ = opened
    missing: list[int] = []
    offset_min, index = header.base_offset, 0
    for rows in _decoded_slices(opened):
        for offset, _, key, _, _ in rows:
            if offset < offset_min:
                raise CorruptRecords(f"offset {offset} where {offset_min} or more is expected")
            offset_min = offset + 1
            if key is None:
                missing.append(index)
            index += 1
    if offset_min > header.next_offset:
        raise CorruptRecords(f"offset {offset_min - 1} in a batch that ends at {header.last_offset}")
    return missing


def _decoded_slices(opened: OpenedBatch) -> Iterator[list[Row]]:
    (header, data), start, left = opened, 0, opened.header.record_count
    while left:
        count, end = _slice_end(data, start, left)
        # The compiled decoder would keep all other threads waiting for a large record with many headers.
        decode = best_decoder() if end - start <= SLICE_BYTES_MAX else decode_with_python
        yield decode(header._replace(record_count=count), data[start:end])
        start, left = end, left - count
    if start != len(data):
        raise CorruptRecords(f"{len(data) - start} bytes after the last record")


def _slice_end(data: bytes, start: int, left: int) -> tuple[int, int]:
    """Returns the number of records in the next slice, and its end. A larger record is a slice of its own."""
    position = start
    for count in range(min(left, SLICE_RECORDS_MAX)):
        try:
            length, body = read_varint(data, position)
        except IndexError:
            raise CorruptRecords("the bytes end inside a record") from None
        end = body + length
        if length < 0 or end > len(data):
            raise CorruptRecords(f"a record of {length} bytes where {len(data) - body} are left")
        if count and end - start > SLICE_BYTES_MAX:
            return count, position
        position = end
    return count + 1, position
