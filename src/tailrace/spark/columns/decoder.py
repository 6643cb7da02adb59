"""Decodes one fetch of record batches to Arrow batches, in the schema of Spark's `kafka` format; no object per record.

A fetch is walked for its headers first, which says where to read on before a record was looked at, so that the next
fetch may be on its way. Then it is decoded in groups of batches, each about the rows of one Arrow batch: checksums,
decompression where there is a codec, one pass that checks the records and finds their fields, and one that copies
each column that is wanted. Small batches cost little, as a group takes one call of each kernel; of large ones, each
gives several Arrow batches.

Nothing is yielded of a group with a damaged batch in it. What is held besides the fetch is one group: some 8 MB and
what becomes of it, or a single batch of `decompressed_bytes_max`, which takes seven times that if its records are of
the smallest kind.

Header keys and missing headers are as in Spark's format. Unlike there, a timestamp that Spark can't hold is null and
doesn't end the query.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Buffer,
    check,
    check_header,
    read_header,
)
from tailrace.records.checksum import crc32c
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from tailrace.records.control import Marker, marker_of
from tailrace.records.decoders import RECORD_SIZE_MIN
from tailrace.records.errors import CorruptBatch, CorruptRecords, TruncatedBatch
from tailrace.spark.columns import arrays
from tailrace.spark.columns.compiler import Array
from tailrace.spark.columns.decode_kernel import (
    ATTRIBUTES,
    BASE_OFFSET,
    COUNT,
    CRC,
    END,
    LAST_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    REASONS,
    START,
    TABLE_WIDTH,
    index_batches,
    scan_records,
)
from tailrace.spark.columns.ranges import ALL, NumberRange
from tailrace.spark.columns.schema import COLUMNS, schema_of

ROWS_MAX = 10_000  # of one Arrow batch; Spark takes both fewer and more at a lower rate
OFFSET_MAX = 2**63 - 1

_GROUP_BYTES = 8 * 1024 * 1024
_TO_CRC = HEADER_SIZE - CRC_START


class ColumnDecoder:
    """Decodes the fetches of one partition, to Arrow batches of one schema."""

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Iterable[str] = COLUMNS,
        *,
        check_crcs: bool = True,
        rows_max: int = ROWS_MAX,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> None:
        self.schema = schema_of(columns)
        self.check_crcs = check_crcs
        self.topic = topic
        self.partition = partition
        self.rows_max = rows_max
        self.decompressed_bytes_max = decompressed_bytes_max
        self.topics = pa.repeat(pa.scalar(topic, pa.string()), rows_max)
        self.partitions = pa.repeat(pa.scalar(partition, pa.int32()), rows_max)

    def decode(
        self,
        data: Buffer,
        start: int = 0,
        end: int = OFFSET_MAX,
        aborted: Sequence[tuple[int, int]] = (),
        times: NumberRange = ALL,
    ) -> "FetchedColumns":
        """The records in `data` with an offset in [start, end) and a timestamp in `util/times`.

        `data` is what a fetch brought, and does not change meanwhile: whole batches, of which the last may be cut
        short unless it is the first. `aborted` are the transactions that a fetch under read_committed lists, each
        by its producer's id and first offset; their records are left out.

        Raises CorruptBatch, here and while the result is iterated over, with the partition and the offset, where
        the bytes are not that.
        """
        return FetchedColumns(self, data, start, end, aborted, times)

    def located(self, error: CorruptBatch, offset: int) -> CorruptBatch:
        """The same error, saying where."""
        return type(error)(f"{self.topic}-{self.partition}, batch at offset {offset}: {error}")


class FetchedColumns:
    """Iterated over, Arrow batches of up to `rows_max` rows; and where to read on after them.

    `next_offset` goes by the headers, so that it is right across what compaction and transactions left out. It is
    `end` or more where nothing before `end` is left to read, and `start` where no whole batch came.
    """

    def __init__(
        self,
        decoder: ColumnDecoder,
        data: Buffer,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]],
        times: NumberRange,
    ) -> None:
        self._decoder = decoder
        self._view = memoryview(data).cast("B")
        self._bytes = _as_array(self._view)
        self._start, self._end = start, end
        self._aborted = aborted
        self._times = times
        table = np.empty((len(self._view) // HEADER_SIZE, TABLE_WIDTH), np.int64)  # pages not written cost nothing
        count, stopped = index_batches(self._bytes, table, end)
        self._table = table[:count]
        self.next_offset = max(start, self._read_on(stopped))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        aborted = _AbortedProducers(self._aborted)
        rows = _Rows(self._decoder.rows_max)
        for group in self._groups():
            if self._decoder.check_crcs:
                self._check_crc(group)
            for data, table in self._sections(self._wanted(group, aborted)):
                yield from self._batches(data, table, rows)

    def _read_on(self, stopped: int) -> int:
        """The offset after the whole batches, which end at the position `stopped`."""
        count = len(self._table)
        offset = int(self._table[-1, BASE_OFFSET] + self._table[-1, LAST_DELTA]) + 1 if count else self._start
        if stopped == len(self._view):
            return offset
        try:
            self._check_rest(stopped, offset if count else 0)
        except TruncatedBatch as error:
            if not count:
                raise self._decoder.located(error, offset) from None
            return offset
        except CorruptBatch as error:
            raise self._decoder.located(error, offset) from None
        return self._end

    def _check_rest(self, position: int, offset_min: int) -> None:
        """Raises what is the matter with the batch that the kernel stopped at, unless it is only past the end."""
        header = read_header(self._view, position)
        check_header(header)
        if not offset_min <= header.base_offset <= OFFSET_MAX - header.last_offset_delta - 1:
            raise CorruptBatch(f"it says {header.base_offset} to {header.last_offset}, and {offset_min} is the least")
        if header.base_offset >= self._end:
            return
        assert header.size > len(self._view) - position, "the kernel stops for a reason"
        raise TruncatedBatch(f"{len(self._view) - position} bytes of a batch of {header.size}")

    def _groups(self) -> Iterator[Array]:
        """Runs of batches with up to `rows_max` records and _GROUP_BYTES; or of one that has more."""
        rows_until, ends = np.cumsum(self._table[:, COUNT]), self._table[:, END].copy()
        first, rows = 0, 0
        while first < len(self._table):
            by_rows = np.searchsorted(rows_until, rows + self._decoder.rows_max, "right")
            by_bytes = np.searchsorted(ends, self._table[first, START] + _GROUP_BYTES, "right")
            after = max(first + 1, int(min(by_rows, by_bytes)))
            yield self._table[first:after]
            first, rows = after, rows_until[after - 1]

    def _check_crc(self, group: Array) -> None:
        view = self._view
        for start, end, crc in group[:, (START, END, CRC)].tolist():
            if crc32c(view[start - _TO_CRC : end]) != crc:
                position = start - HEADER_SIZE
                try:
                    check(view, position)
                except CorruptBatch as error:
                    raise self._decoder.located(error, read_header(view, position).base_offset) from None

    def _wanted(self, group: Array, aborted: "_AbortedProducers") -> Array:
        """The batches of the group that may have rows for us."""
        is_wanted = (group[:, ATTRIBUTES] & CONTROL) == 0
        is_wanted &= group[:, BASE_OFFSET] + group[:, LAST_DELTA] >= self._start
        is_wanted &= (group[:, COUNT] > 0) | (group[:, START] < group[:, END])  # compaction left a header, or less
        if self._aborted:
            is_wanted &= ~self._is_aborted(group, aborted)
        if self._times != ALL:
            is_wanted &= self._may_be_in_time(group)
        return group if is_wanted.all() else group[is_wanted]

    def _may_be_in_time(self, group: Array) -> Array:
        """Returns for each batch whether it may have records in the range of times, by its header. The header has the
        latest time of the records; the earliest is known only if the broker stamped the batch, and all have the same.
        """
        latest, is_stamped = group[:, MAX_TIMESTAMP], (group[:, ATTRIBUTES] & LOG_APPEND_TIME) != 0
        found: Array = (latest >= self._times.first) & ~(is_stamped & (latest > self._times.last))
        return found

    def _is_aborted(self, group: Array, aborted: "_AbortedProducers") -> Array:
        """Returns for each batch whether it belongs to an aborted transaction. Transactions end at their markers, in
        the order of the log.
        """
        is_aborted = np.zeros(len(group), np.bool_)
        for index in np.flatnonzero(group[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).tolist():
            batch = group[index].tolist()
            if not aborted.has(batch[PRODUCER_ID], batch[BASE_OFFSET] + batch[LAST_DELTA]):
                continue
            if not batch[ATTRIBUTES] & CONTROL:
                is_aborted[index] = True
            elif self._marker(batch) == Marker.ABORT:
                aborted.end(batch[PRODUCER_ID])
        return is_aborted

    def _marker(self, batch: list[int]) -> Marker | None:
        try:
            return marker_of(self._view, batch[START] - HEADER_SIZE)[0]
        except CorruptBatch as error:
            raise self._decoder.located(error, batch[BASE_OFFSET]) from None

    def _sections(self, group: Array) -> Iterator[tuple[Array, Array]]:
        """The bytes of records, not compressed, and the table of batches that they belong to."""
        if not (group[:, ATTRIBUTES] & CODEC_MASK).any():
            if len(group):
                start, end = int(group[0, START]), int(group[-1, END])
                yield self._bytes[start:end], _placed(group, group[:, START] - start, group[:, END] - start)
            return
        first, size = 0, 0
        payloads: list[Buffer] = []
        for index, batch in enumerate(group.tolist()):
            payloads.append(self._payload(batch))
            size += len(payloads[-1])
            if size > _GROUP_BYTES or index + 1 == len(group):
                yield _joined(group[first : index + 1], payloads)
                first, size = index + 1, 0
                payloads.clear()

    def _payload(self, batch: list[int]) -> Buffer:
        data = self._view[batch[START] : batch[END]]
        try:
            return decompress(batch[ATTRIBUTES] & CODEC_MASK, data, self._decoder.decompressed_bytes_max)
        except CorruptBatch as error:
            raise self._decoder.located(error, batch[BASE_OFFSET]) from None

    def _batches(self, data: Array, table: Array, rows: "_Rows") -> Iterator[pa.RecordBatch]:
        # No memory is taken for records that a header claims and the bytes can't hold; the kernel refuses those.
        room = np.minimum(table[:, COUNT], (table[:, END] - table[:, START]) // RECORD_SIZE_MIN)
        if (capacity := int(room.sum())) > len(rows.offsets):
            rows = _Rows(capacity)
        count, damaged, reason = scan_records(
            data,
            table,
            self._start,
            self._end,
            *self._times,
            rows.offsets,
            rows.times,
            rows.time_types,
            rows.keys,
            rows.values,
            rows.headers,
        )
        if reason:
            raise self._decoder.located(CorruptRecords(REASONS[reason]), int(table[damaged, BASE_OFFSET]))
        pieces = -(-count // self._decoder.rows_max)
        schema = self._decoder.schema
        for piece in range(pieces):
            part = slice(piece * count // pieces, (piece + 1) * count // pieces)
            columns = [self._column(name, data, rows, part) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, name: str, data: Array, rows: "_Rows", part: slice) -> pa.Array:
        match name:
            case "key":
                return arrays.binary(data, rows.keys[part])
            case "value":
                return arrays.binary(data, rows.values[part])
            case "topic":
                return self._decoder.topics[: part.stop - part.start]
            case "partition":
                return self._decoder.partitions[: part.stop - part.start]
            case "offset":
                return arrays.numbers(name, rows.offsets[part])
            case "timestamp":
                return arrays.timestamps(rows.times[part])
            case "timestampType":
                return arrays.numbers(name, rows.time_types[part])
            case _:
                return arrays.headers(data, rows.headers[part])


class _Rows:
    """Room for what `scan_records` finds, a row for each record."""

    def __init__(self, capacity: int) -> None:
        self.offsets = np.empty(capacity, np.int64)
        self.times = np.empty(capacity, np.int64)
        self.time_types = np.empty(capacity, np.int32)
        self.keys = np.empty((capacity, 2), np.int32)
        self.values = np.empty((capacity, 2), np.int32)
        self.headers = np.empty((capacity, 2), np.int32)


class _AbortedProducers:
    """Whose records are left out, while the log is read upwards: from the first offset of an aborted transaction to
    its marker.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((offset, producer) for producer, offset in aborted), reverse=True)
        self._left_out: set[int] = set()

    def has(self, producer: int, last_offset: int) -> bool:
        """Whether the producer is in an aborted transaction in its batch that ends at `last_offset`."""
        while self._ahead and self._ahead[-1][0] <= last_offset:
            self._left_out.add(self._ahead.pop()[1])
        return producer in self._left_out

    def end(self, producer: int) -> None:
        self._left_out.discard(producer)


def _as_array(data: Buffer) -> Array:
    array = np.frombuffer(data, np.uint8)
    array.setflags(write=False)  # the kernels are compiled for bytes that they can't write to
    return array


def _placed(table: Array, starts: Array, ends: Array) -> Array:
    """The same batches, with their records elsewhere."""
    placed = table.copy()
    placed[:, START], placed[:, END] = starts, ends
    return placed


def _joined(table: Array, payloads: list[Buffer]) -> tuple[Array, Array]:
    ends = np.cumsum([len(payload) for payload in payloads])
    starts = np.concatenate(([0], ends[:-1]))
    data = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    return _as_array(data), _placed(table, starts, ends)
