"""Kafka's topics in Spark, without a jar: needs the `spark` extra, and of a broker nothing but its wire.

The format `tailrace`, which Spark finds by itself:

    source     what Spark sees: the format, its readers and its writers
    options    the options of the format, with the names of Spark's own `kafka` format
    reading    the rows of a range of offsets
    streaming  the plan of a stream: where each micro-batch begins and ends
    small_batches  those that are read where they are planned
    recorded   a stream over the batches of another run
    bounds     from options to offsets
    positions  offsets of many partitions, as a checkpoint has them
    spans      of timestamps, and of offsets
    pushdown   what filters leave to be read
    losses     records that are gone
    writing    rows to a topic
    sink_options  the options of writing
    exactly_once  each row once, on brokers with transactions
    encoding   rows as record batches
    columns    one fetch of record batches as Arrow batches of these columns
    schema     the columns that Spark's own `kafka` format has, as Arrow types
    arrays     Arrow arrays from what the kernels found
    json_files  files of JSON, whole or line by line
    kernel, encode_kernel   the compiled loops over every byte that is read, or written
    compiling  how these are compiled, and kept

And on top of it, `pipelines`: a function from frame to frame that runs live, over history and in tests. Its names are
the ones to import from here; they are loaded on first use, so that a worker that only reads, or a driver that only
plans, waits neither for them nor for the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.pipelines.decoders import Json, Raw, Text
    from tailrace.spark.pipelines.pipeline import Pipeline, pipeline
    from tailrace.spark.pipelines.session.session import session
    from tailrace.spark.pipelines.sinks import Call, Console, Files, Parquet, Topic

__all__ = [
    "Call",
    "Console",
    "Files",
    "Json",
    "Parquet",
    "Pipeline",
    "Raw",
    "Text",
    "Topic",
    "pipeline",
    "session",
]

_HOMES = {
    "decoders": ("Json", "Raw", "Text"),
    "pipeline": ("Pipeline", "pipeline"),
    "session.session": ("session",),
    "sinks": ("Call", "Console", "Files", "Parquet", "Topic"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tailrace.spark.pipelines.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
