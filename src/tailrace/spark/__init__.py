"""Kafka topics in Spark, without a jar: a data source, a sink, and pipelines on top. Needs the `spark` extra.

It knows brokers by the wire protocol alone, so it works with any Kafka. Spark finds the format `tailrace` through the
package `pyspark_tailrace`. From bottom to top:

    columns/      record batches as Arrow columns, by compiled kernels
    source/       reading: options, offsets, micro-batches, data loss
    sink/         writing: Arrow columns as record batches, at least once or exactly once
    data_source   the format `tailrace`: the classes that Spark calls
    pipelines/    a function from frame to frame, run live, replayed over history, tested on rows

The public names below are imported on first use, so that a worker that only reads, or a driver that only plans, loads
neither pipelines nor the compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.pipelines.decoders import Json, Raw, Text
    from tailrace.spark.pipelines.pipeline import Pipeline, pipeline
    from tailrace.spark.pipelines.progress import offsets_behind
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
    "offsets_behind",
    "pipeline",
    "session",
]

_HOMES = {
    "decoders": ("Json", "Raw", "Text"),
    "pipeline": ("Pipeline", "pipeline"),
    "progress": ("offsets_behind",),
    "session.session": ("session",),
    "sinks": ("Call", "Console", "Files", "Parquet", "Topic"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tailrace.spark.pipelines.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
