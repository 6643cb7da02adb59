"""Producer state on disk: Kafka's `.snapshot` file, with the batches Kafka does not keep after its end.

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

from tailrace.log.state.producer_state import BATCHES_KEPT, NO_OFFSET, ProducedBatch, Producer, ProducerState
from tailrace.records.batch import NO_SEQUENCE
from tailrace.records.checksum import crc32c

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">Bq")
_BATCH = struct.Struct(">iqiq")
_NO_BATCH = ProducedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


class CorruptSnapshot(ValueError):
    """The snapshot is cut, damaged or of a version we do not know: the state must be rebuilt from the log."""


def encode_snapshot(state: ProducerState) -> bytes:
    parts = [_COUNT.pack(len(state.producers))]
    parts += [_encode_producer(producer_id, producer) for producer_id, producer in state.producers.items()]
    parts += [_encode_earlier(producer) for producer in state.producers.values()]
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


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
        if version != _VERSION or crc32c(memoryview(data)[_HEAD.size :]) != crc:
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
