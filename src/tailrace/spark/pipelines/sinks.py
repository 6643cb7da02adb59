"""Sinks: where the rows of a pipeline go, and what each guarantees.

A sink can write a stream (a query with a checkpoint) and a batch (a replay). It holds no session and opens nothing
before it is asked to write.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines import outputs
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DELIVERIES = ("auto", "exactly-once", "at-least-once")
NO_BATCH = -1  # the batch id that a callable is given for a batch that no stream has counted

ORIGIN = ("topic", "partition", "offset", "timestamp", "_tombstone")  # all of them there: a row is still a message
CORRUPT = "_corrupt"  # the bytes of a value that could not be decoded
FILE_FORMATS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})  # written by Spark's own file sink
MESSAGE = ("key", "value", "headers", "timestampType", CORRUPT, *ORIGIN)


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The settings of a streaming write, for any sink."""

    name: str
    checkpoint: str
    trigger: Mapping[str, Any] = field(default_factory=dict)  # as `DataStreamWriter.trigger` takes it; none: at once
    output_mode: str = "append"
    client: Mapping[str, str] = field(default_factory=dict)  # `kafka.…` options, for a sink that is a topic


class Sink(ABC):
    @property
    @abstractmethod
    def guarantee(self) -> str:
        """The guarantee, as a sentence for people."""

    @property
    def place(self) -> tuple[str, str] | None:
        """The output: `topic` and its name, or `files` and their absolute path; None if the output cannot be read
        again.
        """
        return None

    @abstractmethod
    def write_stream(self, frame: "DataFrame", settings: QuerySettings) -> "StreamingQuery":
        """Starts a query."""

    @abstractmethod
    def write_batch(self, frame: "DataFrame", client: Mapping[str, str], mode: str = "append") -> None:
        """Writes all rows; `mode` is that of Spark's writers: append, overwrite, error, ignore."""


@dataclass(frozen=True, slots=True)
class Topic(Sink):
    """Writes to a topic. A frame that has only columns of messages (value, key, headers, and their origin) is written
    as it is: value, key and headers, and a message that could not be decoded with its original bytes. Any other row
    becomes JSON, without its key, which is the key of the message, and without the columns of the origin, if all of
    them are there. A tombstone stays one.
    """

    name: str
    delivery: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.delivery not in DELIVERIES:
            raise BadOptions(f"delivery is one of {', '.join(DELIVERIES)}, and not {self.delivery!r}")

    @property
    def guarantee(self) -> str:
        promises = {
            "auto": "exactly once where the broker has transactions, else at least once",
            "exactly-once": "exactly once; refused where the broker has no transactions",
            "at-least-once": "at least once: a batch that is tried again is written again",
        }
        return promises[self.delivery]

    @property
    def place(self) -> tuple[str, str]:
        return "topic", self.name

    def write_stream(self, frame: "DataFrame", settings: QuerySettings) -> "StreamingQuery":
        _make_active(frame)
        writer = as_messages(frame).writeStream.format("tailrace").options(**self._options(settings.client))
        return _start(writer, settings)

    def write_batch(self, frame: "DataFrame", client: Mapping[str, str], mode: str = "append") -> None:
        if mode != "append":
            raise BadOptions(f"a topic can be appended to, and mode {mode!r} is something else")
        _make_active(frame)
        as_messages(frame).write.format("tailrace").options(**self._options(client)).mode("append").save()

    def _options(self, client: Mapping[str, str]) -> dict[str, Any]:
        return {**client, "topic": self.name, "delivery": self.delivery, **self.options}


@dataclass(frozen=True, slots=True)
class Files(Sink):
    """Writes files of any format that Spark writes: `Files("csv", "out", options={"header": "true"})`."""

    format: str
    path: str
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantee(self) -> str:
        if not self._is_file_sink:
            return f"at least once: format {self.format} may have its own way to recognise a batch that is tried again"
        return (
            "exactly once for readers with Spark, which takes the list of valid files from _spark_metadata; "
            "other readers may find the rows of a repeated batch twice"
        )

    @property
    def _is_file_sink(self) -> bool:
        """Whether Spark's own file sink writes it, which keeps `_spark_metadata`."""
        return self.format.lower() in FILE_FORMATS

    @property
    def place(self) -> tuple[str, str]:
        path = self.path
        if path.startswith("file:"):
            path = "/" + path.removeprefix("file:").lstrip("/")
        return "files", path if "://" in path else str(Path(path).resolve())

    def write_stream(self, frame: "DataFrame", settings: QuerySettings) -> "StreamingQuery":
        """Raises OutputMismatch where the checkpoint is not that of the output, and StoreError."""
        if self._is_file_sink:
            outputs.claim(frame.sparkSession, self.path, settings.checkpoint, settings.name)
        writer = frame.writeStream.format(self.format).options(**dict(self.options)).option("path", self.path)
        return _start(writer.partitionBy(*self.partition_by) if self.partition_by else writer, settings)

    def write_batch(self, frame: "DataFrame", client: Mapping[str, str], mode: str = "append") -> None:
        writer = frame.write.format(self.format).options(**dict(self.options)).mode(mode)
        (writer.partitionBy(*self.partition_by) if self.partition_by else writer).save(self.path)


def Parquet(path: str, partition_by: tuple[str, ...] = (), **options: str) -> Files:
    return Files("parquet", path, partition_by, options)


@dataclass(frozen=True, slots=True)
class Console(Sink):
    """Prints the first rows of each batch."""

    rows: int = 20

    @property
    def guarantee(self) -> str:
        return "at least once, for looking at"

    def write_stream(self, frame: "DataFrame", settings: QuerySettings) -> "StreamingQuery":
        return Call(lambda batch, number: self._show(batch, f"Batch {number}")).write_stream(frame, settings)

    def write_batch(self, frame: "DataFrame", client: Mapping[str, str], mode: str = "append") -> None:
        self._show(frame, "Batch")

    def _show(self, frame: "DataFrame", title: str) -> None:
        print(title)
        frame.show(self.rows, truncate=False)


@dataclass(frozen=True, slots=True)
class Call(Sink):
    """Calls a function of yours with each batch and its number, in the driver."""

    function: Callable[["DataFrame", int], Any]

    @property
    def guarantee(self) -> str:
        return (
            "at least once: a batch that is tried again comes with the same number and the same rows, "
            "so a function that replaces what it wrote under that number makes it exactly once"
        )

    def write_stream(self, frame: "DataFrame", settings: QuerySettings) -> "StreamingQuery":
        function = self.function
        return _start(frame.writeStream.foreachBatch(lambda batch, number: _nothing(function(batch, number))), settings)

    def write_batch(self, frame: "DataFrame", client: Mapping[str, str], mode: str = "append") -> None:
        """Called once, with `NO_BATCH`."""
        self.function(frame, NO_BATCH)


def check_sink(given: object) -> None:
    """Raises BadOptions if the argument is not a sink."""
    if isinstance(given, list | tuple):
        raise BadOptions(
            f"a pipeline has one sink, and not {len(given)}: write a pipeline for each of them, "
            "or a Call whose function writes a batch to all"
        )
    if not isinstance(given, Sink):
        raise BadOptions(f"sink is Topic(…), Parquet(…), Files(…), Console() or Call(…), and not {given!r}")


def as_messages(frame: "DataFrame") -> "DataFrame":
    """The columns key, value and headers, of which the topic's messages are made."""
    from pyspark.sql import functions as F

    names = set(frame.columns)
    others = [name for name in ("key", "headers") if name in names]
    if "value" in names and names <= set(MESSAGE):
        return frame.select(_as_it_was(names).alias("value"), *others)
    is_message = names >= set(ORIGIN)
    fields = [name for name in frame.columns if name not in others and not (is_message and name in ORIGIN)]
    if not fields:
        raise BadOptions("a topic needs rows with a value: this frame has nothing but columns that messages come with")
    value: Column = F.to_json(F.struct(*(F.col(f"`{name}`") for name in fields)))
    if is_message:
        value = F.when(~F.col("_tombstone"), value)
    return frame.select(value.alias("value"), *others)


def _as_it_was(names: set[str]) -> "Column":
    """Returns the value of a message, also if it could not be decoded: a null would delete."""
    from pyspark.sql import functions as F

    if CORRUPT not in names:
        return F.col("value")
    return F.coalesce(F.col("value").cast("binary"), CORRUPT)


def _start(writer: "DataStreamWriter", settings: QuerySettings) -> "StreamingQuery":
    named = writer.queryName(settings.name).outputMode(settings.output_mode)
    placed = named.option("checkpointLocation", settings.checkpoint)
    return (placed.trigger(**settings.trigger) if settings.trigger else placed).start()


def _make_active(frame: "DataFrame") -> None:
    """Makes the frame's session the active one of this thread, by creating a frame: when Spark writes rows, it knows
    formats in Python only by the active session, and only the thread that created the session has one.
    """
    frame.sparkSession.createDataFrame([], "nothing INT")


def _nothing(_: object) -> None:
    """A function without a result, which Spark asks for."""
