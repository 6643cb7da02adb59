"""Writes the rows of one task to their topics: each Arrow batch is encoded while earlier ones are in flight.

    sent = write(options, batches)        at least once: what is sent again within the task is written once

A producer is kept by the process for its next task, unless it has failed. The columns that rows may have are those of
Spark's own format (`check_schema`).
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from tailrace.client.cluster.cluster import Cluster, cluster_for
from tailrace.client.options import ClientOptions
from tailrace.client.produce import Producer
from tailrace.spark.sink.options import SinkOptions
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from tailrace.spark.sink.encoder import Rows

CHUNK_BYTES_MAX = 8 << 20  # of rows that are encoded at once
_FULL = 0.9  # of what batches may hold, so that keys that are not spread evenly need no second round

_SPREAD = 4  # partitions of topics that are not known beforehand
_HASHES = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """The report of a task to the driver."""

    task: int = 0
    rows: int = 0
    write_id: str = ""
    is_exactly_once: bool = False
    is_first: bool = True  # of its run, as far as the process of the task knows


# Columns


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raises BadOptions unless these are columns that can be written."""
    fields = {field.name: field.dataType for field in schema.fields}
    if len(fields) < len(schema.fields):
        raise BadOptions("a column comes twice")
    for name, found in fields.items():
        if name not in _COLUMNS:
            wanted = ", ".join(_COLUMNS)
            raise BadOptions(f"column {name!r} cannot be written; there are {wanted}: select those, or rename it")
        is_right, wanted = _COLUMNS[name](found)
        if not is_right:
            raise BadOptions(f"column {name} is {found.simpleString()}, and is to be {wanted}: cast it")
    if "value" not in fields:
        raise BadOptions("there is no column value, which is what is written: select one, text or binary")
    if topic is None and "topic" not in fields:
        raise BadOptions("no topic to write to: the option topic gives one to all rows, or the column topic to each")


def _payload(found: DataType) -> tuple[bool, str]:
    return isinstance(found, StringType | BinaryType), "string or binary"


def _text(found: DataType) -> tuple[bool, str]:
    return isinstance(found, StringType), "string"


def _integer(found: DataType) -> tuple[bool, str]:
    return isinstance(found, IntegerType), "int"


def _header_list(found: DataType) -> tuple[bool, str]:
    element = found.elementType if isinstance(found, ArrayType) else None
    fields = element.fields if isinstance(element, StructType) else []
    kinds = [type(field.dataType) for field in fields]
    names = [field.name for field in fields]
    is_right = names == ["key", "value"] and kinds == [StringType, BinaryType]
    return is_right, "array<struct<key: string, value: binary>>"


_COLUMNS = {
    "key": _payload,
    "value": _payload,
    "topic": _text,
    "partition": _integer,
    "headers": _header_list,
}


# Writing


@dataclass
class Tally:
    """Counts what was written so far."""

    rows: int = 0
    topic: str | None = None  # of the first row

    def add(self, rows: "Rows") -> None:
        self.rows += len(rows)
        self.topic = self.topic or rows.topics[0]


@dataclass
class FingerprintTally(Tally):
    """Also by what rows they are, whatever their order."""

    hash: int = 0

    def add(self, rows: "Rows") -> None:
        super().add(rows)
        self.hash = (self.hash + rows.fingerprint()) & _HASHES

    def __str__(self) -> str:
        return f"rows={self.rows} hash={self.hash:016x}"


_idle: dict[ClientOptions, Producer] = {}


def write(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Returns the number of rows, once all are written."""
    cluster = cluster_for(options.client)
    producer = _idle.pop(options.client, None) or Producer(cluster)
    try:
        tally = Tally()
        send(options, cluster, producer, chunks_for(options, cluster, batches), tally)
        producer.finish()
    finally:
        producer.close()
    _idle[options.client] = producer
    return tally.rows


def send(
    options: SinkOptions, cluster: Cluster, producer: Producer, chunks: Iterable[pa.RecordBatch], tally: Tally
) -> None:
    """Counts the rows; the last of them may be under way still."""
    from tailrace.spark.sink.encoder import Encoder, Rows  # with the first rows: it loads the kernels

    encoder = Encoder(partial(_partition_count, cluster), options.codec, options.batch_bytes_max)
    for chunk in chunks:
        rows = Rows.of(chunk, options.topic)
        for batch_round in encoder.encode(rows, time.time_ns() // 1_000_000):
            producer.begin(batch_round)
        tally.add(rows)


def _partition_count(cluster: Cluster, topic: str) -> int:
    return len(cluster.topic(topic, may_create=True).partitions)


def chunks_for(options: SinkOptions, cluster: Cluster, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Splits rows into chunks that make one round of batches each."""
    spread = _SPREAD if options.topic is None else _partition_count(cluster, options.topic)
    return chunks(batches, min(CHUNK_BYTES_MAX, int(options.batch_bytes_max * spread * _FULL)))


def chunks(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of up to `size` bytes, where rows are alike. None is empty."""
    gathered: list[pa.RecordBatch] = []
    have = 0
    for batch in batches:
        for piece in _pieces(batch, size):
            if gathered and have + piece.nbytes > size:
                yield _one(gathered)
                gathered, have = [], 0
            gathered.append(piece)
            have += piece.nbytes
    if gathered:
        yield _one(gathered)


def _pieces(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    if not batch.num_rows:
        return []
    rows = -(-batch.num_rows // -(-batch.nbytes // size))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
