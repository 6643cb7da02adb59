"""Decides which records of a batch are kept. Pure: bytes in, bytes out, the time is an argument.

    a record       is kept until a newer record of its key is known; without a key it is always kept
    a tombstone    (a key without a value) is removed, too, once its batch's delete horizon has passed
    aborted        records are removed
    a marker       is kept while a batch of its transaction exists, and then until its delete horizon
    a batch        is removed with its last record, except the last one of each live producer: that one is kept, empty,
                   for the producer's epoch and sequence

The delete horizon is set when a batch is first found to hold a tombstone, or a marker whose transaction has no batches
left: it is the time of that pass plus `delete.retention.ms`. It is stored in the batch itself, so that it survives
restarts. A batch from which nothing is removed is kept unchanged, and so is one that cannot be decoded.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.log.compaction.keys import KeyOffsets
from tailrace.log.files.index import AbortedTransaction
from tailrace.records.batch import NO_PRODUCER, BatchHeader
from tailrace.records.control import Marker, marker_of
from tailrace.records.errors import CorruptBatch
from tailrace.records.raw_records import RawRecord, emptied, rebuilt, records_of

_TIMESTAMP_MAX = (1 << 63) - 1


class LastOfProducer(NamedTuple):
    """What a log remembers of a live producer: its epoch, and the offset of its last data batch, if known."""

    last_offset: int  # -1 if only a marker is known
    epoch: int


class TransactionWalk:
    """Follows the transactions of a log from its beginning: which batches were aborted, and which markers have no
    batches of their transaction left.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda one: one.first_offset):
            self._aborted.setdefault(transaction.producer_id, deque()).append(transaction)
        self._with_data: set[int] = set()

    def see_data(self, header: BatchHeader) -> bool:
        """Returns whether this transactional batch was aborted."""
        self._with_data.add(header.producer_id)
        transaction = self._at(header)
        return transaction is not None and transaction.first_offset <= header.base_offset

    def see_marker(self, header: BatchHeader, marker: Marker) -> tuple[bool, AbortedTransaction | None]:
        """Returns whether no batch is left of the transaction that the marker ends; and, if one is left and the
        transaction was aborted, its entry.
        """
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        transaction = self._at(header) if marker is Marker.ABORT and has_data else None
        return not has_data, transaction

    def _at(self, header: BatchHeader) -> AbortedTransaction | None:
        """Returns the producer's first aborted transaction that does not end before this batch."""
        queue = self._aborted.get(header.producer_id)
        while queue and queue[0].last_offset < header.base_offset:
            queue.popleft()
        return queue[0] if queue else None


class BatchFilter:
    """Filters batches in order, from the first one of the log. `keys` has the keys before `end`; batches at `end` or
    behind it are kept unchanged.
    """

    def __init__(
        self,
        keys: KeyOffsets,
        end: int,
        transactions: TransactionWalk,
        producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._end = end
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._new_horizon = min(now_ms + delete_retention_ms, _TIMESTAMP_MAX)
        self.aborted: list[AbortedTransaction] = []  # still needed by readers; taken by the caller
        self.without_key = 0
        self.unreadable = 0

    def filter(self, buffer: memoryview, position: int, header: BatchHeader) -> bytearray | memoryview | None:
        """Returns what is kept of the batch at `position`: a view of its bytes if that is everything, None if it is
        nothing.
        """
        whole = buffer[position : position + header.size]
        if header.is_control:
            return self._filter_control(whole, header)
        is_aborted = header.is_transactional and self._transactions.see_data(header)
        if header.base_offset >= self._end:
            return whole
        if is_aborted:
            return self._without_records(whole, header)
        try:
            data, rows = records_of(buffer, position, header)
        except CorruptBatch:
            self.unreadable += 1
            return whole
        return self._filter_records(whole, header, data, rows)

    def _filter_records(
        self, whole: memoryview, header: BatchHeader, data: bytes, rows: list[RawRecord]
    ) -> bytearray | memoryview | None:
        horizon = header.delete_horizon
        tombstones_stay = horizon is None or self._now_ms < horizon
        newest, base_offset = self._keys.newest, header.base_offset
        kept = [
            row
            for row in rows
            if row.key is None
            or ((row.has_value or tombstones_stay) and newest(row.key) <= base_offset + row.offset_delta)
        ]
        self.without_key += sum(row.key is None for row in kept)
        if not kept:
            return self._without_records(whole, header)
        needs_horizon = horizon is None and any(not row.has_value and row.key is not None for row in kept)
        if len(kept) == len(rows) and not needs_horizon:
            return whole
        return rebuilt(header, data, kept, self._new_horizon if needs_horizon else None)

    def _filter_control(self, whole: memoryview, header: BatchHeader) -> bytearray | memoryview | None:
        try:
            marker, _ = marker_of(whole)
        except CorruptBatch:
            self.unreadable += 1
            return whole
        if marker is None:  # another kind of control record, or removed before
            return whole if header.record_count else self._without_records(whole, header)
        is_empty, aborted = self._transactions.see_marker(header, marker)
        if aborted is not None:
            self.aborted.append(aborted)
        if not is_empty or header.base_offset >= self._end:
            return whole
        if header.delete_horizon is None:
            return self._with_horizon(whole, header)
        return whole if self._now_ms < header.delete_horizon else self._without_records(whole, header)

    def _with_horizon(self, whole: memoryview, header: BatchHeader) -> bytearray | memoryview:
        try:
            data, rows = records_of(whole, 0, header)
        except CorruptBatch:
            self.unreadable += 1
            return whole
        return rebuilt(header, data, rows, self._new_horizon)

    def _without_records(self, whole: memoryview, header: BatchHeader) -> bytearray | memoryview | None:
        if not self._is_last_of_producer(header):
            return None
        return emptied(header) if header.record_count else whole

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset < 0:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset
