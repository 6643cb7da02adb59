"""Encodes Arrow batches as record batches; no object per record.

    rows = Rows.of(batch, topic)          the columns of one Arrow batch, as the kernels take them
    rows.fingerprint()                    a number for them, whatever their order
    encoder.encode(rows, now)             rounds of batches, one batch of a partition in each

An encoder remembers which partition the rows without a key are at. Batches come without producer, sequence and CRC,
which are the producer's to put in.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, NO_PRODUCER, NO_SEQUENCE
from tailrace.records.compression import Codec, compress
from tailrace.spark.columns.compiler import NULL, Array
from tailrace.spark.columns.schema import HEADERS
from tailrace.spark.sink.encode_kernel import (
    NOT_GIVEN,
    PLAN_WIDTH,
    SIZE,
    assign_slots,
    fill_batches,
    fingerprint,
    plan_batches,
)
from tailrace.spark.sink.options import BATCH_BYTES_MAX

RUN_BYTES_MIN = 16 * 1024  # that rows without a key go to one partition: what Java's producer has for a batch

Round = dict[TopicPartition, memoryview]

_Columns = tuple[Array, Array, Array, Array, Array, Array, Array, Array, Array]  # as kernels take them
_NOTHING = np.empty(0, np.uint8)
_SIGNED_64 = 1 << 63


class BadRows(ValueError):
    """Rows that no topic can take."""


class Column(NamedTuple):
    data: Array
    fields: Array  # of each row where it begins in the data, and its length


@dataclass(frozen=True, slots=True)
class Rows:
    keys: Column
    values: Column
    lists: Array  # of each row its first header, and how many there are
    header_keys: Column
    header_values: Column
    topics: tuple[str, ...]
    topic_of: Array
    given: Array  # partitions

    @staticmethod
    def of(batch: pa.RecordBatch, topic: str | None = None) -> "Rows":
        """All for `topic`, or each for that of its column. Raises BadRows where a row has none."""
        count = batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        lists, header_keys, header_values = _headers(columns.get(HEADERS), count)
        topics, topic_of = _topics(columns.get("topic"), topic, count)
        return Rows(
            _column(columns.get("key"), count),
            _column(columns["value"], count),
            *(lists, header_keys, header_values, topics, topic_of),
            _partitions(columns.get("partition"), count),
        )

    def __post_init__(self) -> None:
        by_row = (self.keys.fields, self.values.fields, self.lists, self.topic_of, self.given)
        assert {len(column) for column in by_row} == {len(self)}, "kernels do not check how long columns are"
        assert len(self.header_keys.fields) == len(self.header_values.fields), "a header has a key and a value"

    def __len__(self) -> int:
        return len(self.topic_of)

    def fingerprint(self) -> int:
        """A sum, of 64 bits: that of two batches is the sum of theirs."""
        hashes = np.array([_hash(topic) for topic in self.topics], np.int64)
        total, count = fingerprint(*self._flat(), self.topic_of, hashes, self.given)
        assert count == len(self), "columns are of one batch"
        return int(total)

    def _flat(self) -> _Columns:
        return (*self.keys, *self.values, self.lists, *self.header_keys, *self.header_values)


class Encoder:
    """`partition_count` says how many partitions a topic has."""

    def __init__(
        self,
        partition_count: Callable[[str], int],
        codec: Codec = Codec.NONE,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self._partition_count = partition_count
        self._codec = codec
        self._limit = max(1, batch_bytes_max - HEADER_SIZE)
        self._runs: dict[str, tuple[int, int]] = {}  # of each topic: the partition for what has no key, and its bytes

    def encode(self, rows: Rows, now: int) -> list[Round]:
        """All records have the time `now`. Raises BadRows for a partition that is not there."""
        if not len(rows):
            return []
        places = self._places(rows.topics)
        slots = self._slots(rows, places)
        slot_count = int(places[-1, 0] + places[-1, 1])
        table = np.empty((len(rows), PLAN_WIDTH), np.int64)
        batch_of, deltas, bodies = (np.empty(len(rows), np.int32) for _ in range(3))
        count = plan_batches(
            rows.keys.fields,
            rows.values.fields,
            rows.lists,
            rows.header_keys.fields,
            rows.header_values.fields,
            slots,
            self._limit,
            np.full(slot_count, -1, np.int64),
            table,
            batch_of,
            deltas,
            bodies,
        )
        assert count > 0, "a record of two gigabytes"
        table = table[:count]
        ends = np.cumsum(table[:, SIZE] + HEADER_SIZE)
        starts = ends - table[:, SIZE]
        output = np.empty(int(ends[-1]), np.uint8)
        filled = fill_batches(*rows._flat(), batch_of, deltas, bodies, starts.copy(), ends, output)
        assert filled == len(rows), "what was planned is what is written"
        return self._rounds(table, output.data, starts, _partition_of_slots(rows.topics, places), now)

    def _places(self, topics: Sequence[str]) -> Array:
        """Returns for each topic its first slot, its number of partitions, and its run."""
        places = np.empty((len(topics), 4), np.int64)
        slot = 0
        for index, topic in enumerate(topics):
            count = self._partition_count(topic)
            partition, size = self._runs.get(topic) or (random.randrange(count), 0)  # noqa: S311 - any will do
            places[index] = slot, count, partition % count, size
            slot += count
        return places

    def _slots(self, rows: Rows, places: Array) -> Array:
        size = int(np.maximum(rows.values.fields[:, 1], 0).sum(dtype=np.int64))
        run_bytes = max(RUN_BYTES_MIN, size // int(places[:, 1].max()))
        slots = np.empty(len(rows), np.int32)
        assigned = assign_slots(
            *rows.keys, rows.values.fields, rows.topic_of, rows.given, places, min(run_bytes, self._limit), slots
        )
        if assigned < len(rows):
            topic = rows.topics[rows.topic_of[assigned]]
            raise BadRows(
                f"a row is for partition {rows.given[assigned]} of topic {topic}, which has "
                f"{places[rows.topic_of[assigned], 1]} partitions, counted from 0"
            )
        for index, topic in enumerate(rows.topics):
            self._runs[topic] = (int(places[index, 2]), int(places[index, 3]))
        return slots

    def _rounds(
        self, table: Array, output: memoryview, starts: Array, partitions: list[TopicPartition], now: int
    ) -> list[Round]:
        rounds: list[Round] = []
        done: dict[TopicPartition, int] = {}
        for (slot, size, count), start in zip(table.tolist(), starts.tolist(), strict=True):
            batch = self._batch(output[start - HEADER_SIZE : start + size], count, now)
            partition = partitions[slot]
            place = done.get(partition, 0)
            done[partition] = place + 1
            if place == len(rounds):
                rounds.append({})
            rounds[place][partition] = batch
        return rounds

    def _batch(self, batch: memoryview, count: int, now: int) -> memoryview:
        """With its header, and its records compressed."""
        if self._codec is not Codec.NONE:
            records = compress(self._codec, batch[HEADER_SIZE:])
            batch = memoryview(bytearray(HEADER_SIZE) + records)
        length, last = len(batch) - LENGTH_END, count - 1
        producer = (NO_PRODUCER, -1, NO_SEQUENCE)
        HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, self._codec, last, now, now, *producer, count)
        return batch


# Columns


def _column(array: pa.Array | None, count: int) -> Column:
    """Text as its UTF-8. A column that is not there is one of nulls."""
    fields = np.empty((count, 2), np.int32)
    if array is None or array.null_count == count:
        fields[:] = NULL
        return Column(_NOTHING, fields)
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary() if pa.types.is_large_binary(array.type) else pa.string())
    _, offset_bytes, data = array.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[array.offset : array.offset + count + 1]
    fields[:, 0] = offsets[:-1]
    np.subtract(offsets[1:], offsets[:-1], out=fields[:, 1])
    if array.null_count:
        fields[_nulls(array), 1] = NULL
    return Column(np.frombuffer(data, np.uint8) if data is not None and data.size else _NOTHING, fields)


def _headers(array: pa.Array | None, count: int) -> tuple[Array, Column, Column]:
    """No headers where there is null. Raises BadRows for one without a key."""
    lists = np.zeros((count, 2), np.int32)
    if array is None or array.null_count == count:
        return lists, _column(None, 0), _column(None, 0)
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    lists[:, 1] = array.value_lengths().fill_null(0).to_numpy()
    lists[:, 0] = np.cumsum(lists[:, 1]) - lists[:, 1]
    pairs = array.flatten()  # those of these rows, without what nulls may hide
    keys, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or keys.null_count:
        raise BadRows("a header has no key: Kafka has none without")
    return lists, _column(keys, len(pairs)), _column(values, len(pairs))


def _topics(array: pa.Array | None, topic: str | None, count: int) -> tuple[tuple[str, ...], Array]:
    if topic is not None:
        return (topic,), np.zeros(count, np.int32)
    if array is None or array.null_count:
        raise BadRows("a row has no topic: the option topic gives one to all, or the column topic to each")
    encoded = array.dictionary_encode()
    names = tuple(encoded.dictionary.to_pylist())
    return names, np.array(encoded.indices, np.int32)


def _partitions(array: pa.Array | None, count: int) -> Array:
    if array is None:
        return np.full(count, NOT_GIVEN, np.int32)
    given: Array = array.fill_null(NOT_GIVEN).to_numpy(zero_copy_only=False).astype(np.int32)
    if (negative := given[(given < 0) & ~_nulls(array)]).size:
        raise BadRows(f"a row is for partition {negative[0]}: they are counted from 0")
    return given


def _nulls(array: pa.Array) -> Array:
    found: Array = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _partition_of_slots(topics: Sequence[str], places: Array) -> list[TopicPartition]:
    counts = places[:, 1].tolist()
    return [
        TopicPartition(topic, number) for topic, count in zip(topics, counts, strict=True) for number in range(count)
    ]


def _hash(topic: str) -> int:
    """The same in every process."""
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest(), "big") - _SIGNED_64
