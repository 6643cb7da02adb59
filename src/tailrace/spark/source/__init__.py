"""Reading topics with Spark: from options to offsets, and from ranges of offsets to rows.

options              the options of the format, with the names of Spark's `kafka` format
consumer_properties  properties of Kafka's consumers that have no effect here, or are refused
table_options        the options of a table in Spark's catalog
positions            offsets of many partitions, in the JSON of Spark's checkpoints
bounds               from options to the offsets where a read begins and ends
pushdown             filters that Spark pushes down, as less to read
losses               records that are gone, and what `onDataLoss` does about them
reader               one task: a range of one partition as Arrow batches
stream               the plan of a stream: where each micro-batch begins and ends
small_batches        small micro-batches, read by the planning process itself
recorded_batches     a stream over the recorded micro-batches of an earlier run, for exact replay
json_files           JSON files, replaced as a whole or appended line by line
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.data_source import TailraceSource as TailraceSource


def __getattr__(name: str) -> Any:
    """`tailrace.spark.source.TailraceSource` is a documented name; the module it is in imports this package."""
    if name == "TailraceSource":
        from tailrace.spark.data_source import TailraceSource

        return TailraceSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
