"""Producer state: detects duplicates, gaps, fenced producers and open transactions.

Of each producer id the last five batches are kept: a client has at most five requests in flight, so a retry is
always among them. `check` decides before an append, `replay` changes the state after it; recovery calls the same
`replay` for every batch it scans, which is why a state loaded from a snapshot and one rebuilt from the log are
equal.

A transaction is undecided from its first record to its marker, and its marker counts once it is flushed. Batches
without a sequence (NO_SEQUENCE) are the broker's own, such as offsets that are committed in a transaction: the rule of
sequences is not for them.

On disk the state is Kafka's `.snapshot` file, with the batches Kafka does not keep after its end:

    version (int16, 1), CRC-32C of all that follows (uint32), count (int32), then a producer each:
      id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
      coordinator epoch int32, first offset of the open transaction int64 (-1: none)
    then ours, for each producer in the same order: count (uint8), timestamp of its last batch (int64), which is older
    than the producer's where a marker came after it, and the batches before that one, oldest first:
      last sequence int32, last offset int64, offset delta int32, timestamp int64

Kafka's reader stops after its own part, and a snapshot of Kafka's has no more: there, one batch is known of each
producer.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.log.files.index import AbortedTransaction
from tailrace.log.layout.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from tailrace.log.state.refused_batches import PartitionRefusals
from tailrace.records.batch import CONTROL, NO_PRODUCER, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from tailrace.records.checksum import crc32c
from tailrace.records.control import Marker

BATCHES_KEPT = 5
NO_OFFSET = -1
SEQUENCE_MASK = 0x7FFFFFFF


class ProducedBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class Producer:
    """The state of one producer id. Two are equal if a snapshot would have the same entry for both."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "idle_since_ms", "last_timestamp", "transaction_start")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        epoch: int,
        coordinator_epoch: int = -1,
        transaction_start: int = NO_OFFSET,
        last_timestamp: int = -1,
        batches: Iterable[ProducedBatch] = (),
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.transaction_start = transaction_start
        self.last_timestamp = last_timestamp
        self.idle_since_ms: int | None = None  # on a steady clock; None until `expire` finds it idle
        self.batches = deque(batches, BATCHES_KEPT)

    def _saved(self) -> tuple[object, ...]:
        return self.epoch, self.coordinator_epoch, self.transaction_start, self.last_timestamp, list(self.batches)

    def __eq__(self, other: object) -> bool:
        return self._saved() == other._saved() if isinstance(other, Producer) else NotImplemented

    def __repr__(self) -> str:
        return f"Producer{self._saved()}"

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find(self, header: BatchHeader) -> ProducedBatch | None:
        """Returns the batch that `header` duplicates, or None."""
        for batch in self.batches:
            if batch.last_sequence == header.last_sequence and batch.base_sequence == header.base_sequence:
                return batch
        return None


class ClosedTransaction(NamedTuple):
    first_offset: int
    marker_offset: int


class OpenTransaction(NamedTuple):
    producer_id: int
    epoch: int
    first_offset: int


class ProducerState:
    def __init__(self, producers: dict[int, Producer] | None = None) -> None:
        self.producers = producers or {}
        self.refused: PartitionRefusals | None = None  # set by the broker: the expected sequences of unknown producers
        # The producer of each open transaction by its first offset, and in that order: every fetch needs the oldest.
        self._open: dict[int, int] = dict(
            sorted((p.transaction_start, n) for n, p in self.producers.items() if p.transaction_start != NO_OFFSET)
        )
        self._closing: list[ClosedTransaction] = []

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Returns None if the batch may be appended, and the original if it is a duplicate. Raises if it is out of
        order, or not part of the producer's open transaction.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            self._check_unknown(header)
            return None
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} is at epoch {producer.epoch}, the batch has {header.producer_epoch}"
            )
        if header.attributes & CONTROL:
            return None
        same_epoch = header.producer_epoch == producer.epoch
        due = (producer.last_sequence + 1) & SEQUENCE_MASK if same_epoch else 0
        if header.base_sequence != due:  # else it is no duplicate
            if same_epoch and (original := producer.find(header)):
                return original
            if header.base_sequence != NO_SEQUENCE:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence} but {due} is due"
                )
        if producer.transaction_start != NO_OFFSET and not header.attributes & TRANSACTIONAL:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has an open transaction, and the batch is not transactional"
            )
        return None

    def _check_unknown(self, header: BatchHeader) -> None:
        """Raises OutOfOrderSequence if a refused batch of the producer must come first."""
        if self.refused is None or header.attributes & CONTROL:
            return
        due = self.refused.due(header.producer_id, header.producer_epoch)
        if due is not None and header.base_sequence != due:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence} but {due} is due, "
                "which was refused before"
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Returns whether the producer has a transaction open here under exactly this epoch."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_start != NO_OFFSET and producer.epoch == epoch

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Returns whether the batch is one of the last that the producer has appended here."""
        producer = self.producers.get(header.producer_id)
        return producer is not None and producer.epoch == header.producer_epoch and producer.find(header) is not None

    def continues_transaction(self, header: BatchHeader) -> bool:
        """Returns whether the batch is part of a transaction that is open here."""
        return header.is_transactional and self.has_open_transaction(header.producer_id, header.producer_epoch)

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns all open transactions, the oldest first, under the newest epoch that is known of their producer."""
        return [
            OpenTransaction(producer_id, self.producers[producer_id].epoch, first_offset)
            for first_offset, producer_id in self._open.items()
        ]

    def touch(self, producer_id: int) -> bool:
        """Notes that the producer is not idle. Returns whether it is known."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return False
        producer.idle_since_ms = None
        return True

    def replay(self, header: BatchHeader, marker: Marker | None, coordinator_epoch: int) -> AbortedTransaction | None:
        """Applies an appended batch. Returns the index entry of the transaction that it aborts, if any."""
        if header.producer_id == NO_PRODUCER:
            return None
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
            if self.refused is not None:
                self.refused.forget(header.producer_id)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = header.max_timestamp
        producer.idle_since_ms = None
        attributes, sequence, delta = header.attributes, header.base_sequence, header.last_offset_delta
        if attributes & CONTROL:
            return self._close_transaction(producer, header, marker, coordinator_epoch)
        if sequence != NO_SEQUENCE:
            last_sequence, last_offset = (sequence + delta) & SEQUENCE_MASK, header.base_offset + delta
            producer.batches.append(ProducedBatch(last_sequence, last_offset, delta, header.max_timestamp))
        if attributes & TRANSACTIONAL and producer.transaction_start == NO_OFFSET:
            producer.transaction_start = header.base_offset
            self._open[header.base_offset] = header.producer_id
        return None

    def _close_transaction(
        self, producer: Producer, header: BatchHeader, marker: Marker | None, coordinator_epoch: int
    ) -> AbortedTransaction | None:
        if marker is None:  # a control record of another kind decides nothing
            return None
        producer.coordinator_epoch = coordinator_epoch
        first_offset, producer.transaction_start = producer.transaction_start, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        del self._open[first_offset]
        self._closing.append(ClosedTransaction(first_offset, header.last_offset))
        if marker is not Marker.ABORT:
            return None
        still_open = next(iter(self._open), header.next_offset)
        return AbortedTransaction(header.producer_id, first_offset, header.last_offset, still_open)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which everything is decided and flushed."""
        if not self._open and not self._closing:
            return high_watermark
        if self._closing:
            self._closing = [closed for closed in self._closing if closed.marker_offset >= high_watermark]
        undecided = next(iter(self._open), high_watermark)
        closing = min((closed.first_offset for closed in self._closing), default=high_watermark)
        return min(undecided, closing, high_watermark)

    def expire(self, steady_ms: int, after_ms: int) -> None:
        """Forgets producers that have been idle for more than `after_ms` and have no open transaction.

        `steady_ms` is of a steady clock: a wall clock that jumps ahead must not make the broker forget producers. Idle
        time counts from the first call after the producer's last batch, or after a restart.
        """
        idle = []
        for producer_id, producer in self.producers.items():
            if producer.idle_since_ms is None:
                producer.idle_since_ms = steady_ms
            elif steady_ms - producer.idle_since_ms > after_ms and producer.transaction_start == NO_OFFSET:
                idle.append(producer_id)
        for producer_id in idle:
            del self.producers[producer_id]


_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">Bq")
_BATCH = struct.Struct(">iqiq")
_NO_BATCH = ProducedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


class CorruptSnapshot(ValueError):
    """The snapshot is truncated, damaged or of an unknown version: the state must be rebuilt from the log."""


def encode_snapshot(state: ProducerState) -> bytes:
    parts = [_COUNT.pack(len(state.producers))]
    parts += [_encode_producer(producer_id, producer) for producer_id, producer in state.producers.items()]
    parts += [_encode_earlier(producer) for producer in state.producers.values()]
    body = b"".join(parts)
    return _HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def _encode_producer(producer_id: int, producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else _NO_BATCH
    return _PRODUCER.pack(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def _encode_earlier(producer: Producer) -> bytes:
    batches = list(producer.batches)[:-1]
    last = producer.batches[-1] if producer.batches else _NO_BATCH
    return _EARLIER.pack(len(batches), last.timestamp) + b"".join(_BATCH.pack(*batch) for batch in batches)


def decode_snapshot(data: bytes) -> ProducerState:
    try:
        version, crc = _HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION or crc32c(memoryview(data)[_HEAD.size :]) != crc:
            raise CorruptSnapshot(f"version {version}, checksum {crc:#010x} does not match")
        return ProducerState(_decode_producers(data))
    except (struct.error, IndexError) as error:
        raise CorruptSnapshot(str(error)) from None


def _decode_producers(data: bytes) -> dict[int, Producer]:
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    position = _HEAD.size + _COUNT.size
    if not 0 <= count <= (len(data) - position) // _PRODUCER.size:
        raise CorruptSnapshot(f"{count} producers in {len(data)} bytes")
    producers = {}
    for _ in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = _PRODUCER.unpack_from(
            data, position
        )
        position += _PRODUCER.size
        producer = producers[producer_id] = Producer(epoch, coordinator_epoch, start, timestamp)
        if offset != NO_OFFSET:
            producer.batches.append(ProducedBatch(sequence, offset, delta, timestamp))
    if position < len(data):
        _decode_earlier(data, position, producers)
    return producers


def _decode_earlier(data: bytes, position: int, producers: dict[int, Producer]) -> None:
    for producer in producers.values():
        count, last_timestamp = _EARLIER.unpack_from(data, position)
        position += _EARLIER.size
        earlier = [ProducedBatch(*_BATCH.unpack_from(data, position + n * _BATCH.size)) for n in range(count)]
        position += count * _BATCH.size
        last = [batch._replace(timestamp=last_timestamp) for batch in producer.batches]
        producer.batches = deque(earlier + last, maxlen=BATCHES_KEPT)
