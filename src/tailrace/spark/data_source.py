"""The format `tailrace`: the classes that Spark calls. Options, schema and rows are those of Spark's `kafka` format.

    spark.read.format("tailrace").options(**{"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}).load()

The package `pyspark_tailrace` beside this one makes Spark find it by itself.
"""

import functools
import logging
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.client.cluster.cluster import cluster_for
from tailrace.spark.columns.schema import HEADERS
from tailrace.spark.sink.exactly_once import TaskWrite, check_sent, delivered, forget
from tailrace.spark.sink.options import SinkOptions, sink_options
from tailrace.spark.sink.writer import Sent, check_schema
from tailrace.spark.source import bounds
from tailrace.spark.source.options import EARLIEST, BadOptions, SourceOptions, source_options
from tailrace.spark.source.positions import Positions
from tailrace.spark.source.pushdown import RowFilter, row_filter
from tailrace.spark.source.reader import Range, ranges, read
from tailrace.spark.source.recorded_batches import RecordedPlan
from tailrace.spark.source.small_batches import SimpleReader, Together, note_ends, read_small, read_together
from tailrace.spark.source.stream import Json, StreamPlan
from tailrace.spark.source.table_options import has_options, query_options, schema_with, table_options

logger = logging.getLogger("tailrace.spark")

FORMAT = "tailrace"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

_DDL = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


class TailraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str | StructType:
        of_table = table_options(self.options)
        given = self.options if of_table is None else of_table
        # Not yet known; what has an end is a batch.
        is_stream = not any(name.lower().startswith("ending") for name in given)
        columns = source_options(given, is_stream=is_stream).columns
        if of_table is not None:
            return schema_with(of_table, columns)
        return ", ".join(f"{name} {_DDL[name]}" for name in columns)

    def reader(self, schema: StructType) -> "BatchReader":
        given = query_options(self.options, schema)
        if not given:
            raise BadOptions("a table of this format is created without columns: CREATE TABLE name USING tailrace …")
        options = source_options(given, is_stream=False)
        _check_schema(schema, options)
        if options.filter_pushdown and _pushes_filters_down():
            return FilteringReader(options)
        if options.filter_pushdown:
            logger.warning("filterPushdown=true has no effect here: there are no filters, or %s is false", _PUSHDOWN)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> "StreamReader":
        given = query_options(self.options, schema)
        # Spark compares the schema of prefetched rows with the table's, and takes metadata for a difference.
        is_off = given.get("prefetch", "").lower() == "false" or has_options(schema)
        return (StreamReader if is_off else SmallBatchReader)(given, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        if overwrite:
            raise BadOptions("a topic cannot be overwritten: mode is append")
        return BatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        return StreamWriter(self._sink_options(schema))  # in complete mode, too, each result is appended

    def _sink_options(self, schema: StructType) -> SinkOptions:
        if has_options(schema):
            raise BadOptions('a table is for reading: frame.write.format("tailrace") writes to a topic')
        options = sink_options(self.options)
        check_schema(schema, options.topic)
        return options


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    """Checks the schema that the user gave: Spark does not call `schema` above for it."""
    ours = f"struct<{','.join(f'{name}:{_DDL[name]}' for name in options.columns)}>"
    if schema.simpleString() != ours:
        raise BadOptions(f"the schema is fixed, and cannot be {schema.simpleString()}: it is {ours}")


class BatchReader(DataSourceReader):
    """A closed range."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._row_filter = RowFilter()

    def partitions(self) -> Sequence[InputPartition]:
        cluster = cluster_for(self._options.client)
        topics = bounds.topics_of(cluster, self._options)
        start, end = bounds.start_of(cluster, self._options, topics), bounds.end_of(cluster, self._options, topics)
        if self._options.starting.word != EARLIEST:  # else whatever is first by now will do
            start = bounds.begin_of(cluster, self._options, start, end.positions)
        if self._row_filter != RowFilter():
            start, end = bounds.narrowed(cluster, start, end, self._row_filter)
        return ranges(start, end.positions, self._options.min_partitions, end.times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # how Spark asks for a batch without partitions
        return read(self._options, partition)


class FilteringReader(BatchReader):
    """A batch reader that reads less where filters allow it. Spark still has to apply all filters.

    Only on request: Spark plans a DataFrame once, and the filters of that plan apply to everything else that is made of
    it; `filtered.union(filtered_otherwise)` would miss rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._row_filter = row_filter(filters)
        return iter(filters)


def _pushes_filters_down() -> bool:
    """Returns whether Spark pushes filters down in this process, which it starts for that with the configuration
    `_PUSHDOWN`. Processes of data sources cannot read that configuration, and without it a reader that takes filters
    fails.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (main is not None and main.name == _PUSHDOWN_WORKER)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. Wrong options are reported by its methods: Spark does not pass on what the constructor raises."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema

    @functools.cached_property
    def _options(self) -> SourceOptions:
        options = source_options(self._given, is_stream=True)
        _check_schema(self._schema, options)
        return options

    @functools.cached_property
    def _plan(self) -> StreamPlan | RecordedPlan:
        recorded = self._options.recorded_batches
        return StreamPlan(self._options) if recorded is None else RecordedPlan(self._options, recorded)

    def initialOffset(self) -> Json:
        return self._plan.initial().to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._plan.next_end(Positions.from_json(start), most).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Json | None:
        newest = self._plan.newest
        return newest.to_json() if newest is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan.prepare_for_available_now()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        return self._ranges(start, end)

    def _ranges(self, start: Json, end: Json) -> list[Range]:
        to = Positions.from_json(end)
        return ranges(self._plan.begin(Positions.from_json(start), to), to, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range | Together)
        return read_together(self._options, partition.ranges if isinstance(partition, Together) else [partition])


class SmallBatchReader(StreamReader, SimpleReader):
    """A stream reader that sends the rows of small batches along with their plan (`small_batches.py`)."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        StreamReader.__init__(self, given, schema)
        self.simple_reader = self
        self._rows: list[pa.RecordBatch] | None = None
        self._noted: Positions | None = None

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        end = StreamReader.latestOffset(self, start, limit)
        newest = self._plan.newest
        if self._options.state_directory is not None and newest is not None and newest != self._noted:
            note_ends(self._options, newest)
            self._noted = newest
        return end

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        wanted = self._ranges(start, end)
        self._rows = read_small(self._options, wanted)
        return wanted if self._rows is None else [Together(tuple(wanted))]

    def getCache(self, start: Json, end: Json) -> Iterator[pa.RecordBatch] | None:
        rows, self._rows = self._rows, None
        return None if rows is None else iter(rows)

    def commit(self, end: Json) -> None:
        """Nothing is kept."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch. Each write has an id, which its tasks and their retries share."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return delivered(self._options, TaskWrite(self._write_id, _context().partitionId()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        forget(self._options, self._write_id, _sent(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leaves the rows that completed tasks have written. Their markers are of no use any more."""
        forget(self._options, self._write_id, _sent(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = _context()
        query, batch = _property(context, "sql.streaming.queryId"), int(_property(context, "streaming.sql.batchId"))
        run = context.getLocalProperty("spark.jobGroup.id") or ""
        return delivered(self._options, TaskWrite(query, context.partitionId(), batch, run), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        check_sent(self._options, batchId, _sent(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _property(context: TaskContext, name: str) -> str:
    found = context.getLocalProperty(name)
    assert found is not None, f"Spark tells the tasks of a stream its {name}"
    return found


def _sent(messages: list[WriterCommitMessage | None]) -> list[Sent]:
    return [message for message in messages if isinstance(message, Sent)]
