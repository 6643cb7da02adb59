"""Small micro-batches, read by the process that plans them.

A task that reads in Python costs Spark some 50 ms for a few rows: the way from its JVM to a Python worker and back. For
what it calls a simple reader, Spark has a shorter way: rows that were read by the process that plans are sent along
with the plan, and the task finds them in the JVM. There is no public way to choose between the two, batch by batch, so
the reader is derived from Spark's own class for that; where a release has none, tasks read every batch.

A batch is small by what it holds, not by how long it took to read, so it is small again when it is read again. Where
records are missing, tasks read the batch, and report the loss as they always do.

The price is that Spark does not ask such a reader where its topics end, and shows no lag. Where there is a state
directory, it is noted there, for `pipelines/`; who wants it in Spark's own progress says `prefetch=false`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tailrace.spark.source.json_files import write_json
from tailrace.spark.source.losses import DataLost, GoneSincePlanned
from tailrace.spark.source.options import SourceOptions
from tailrace.spark.source.positions import Positions
from tailrace.spark.source.reader import Range, read

ROWS_MAX = 10_000
BYTES_MAX = 1 << 20

ENDS = "latest.json"  # in the state directory

if TYPE_CHECKING:
    SimpleReader = DataSourceStreamReader
else:
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as SimpleReader
    except ImportError:
        SimpleReader = DataSourceStreamReader


@dataclass
class Together(InputPartition):
    """All ranges of a batch for one task, should it not find the rows that were read for it."""

    ranges: tuple[Range, ...]


def read_small(options: SourceOptions, wanted: Sequence[Range]) -> list[pa.RecordBatch] | None:
    """All of the batch; None where it is not small, or something is missing."""
    if not wanted or sum(one.end - one.start for one in wanted) > ROWS_MAX or options.min_partitions:
        return None
    found, size = [], 0
    try:
        for batch in read_together(options, wanted):
            found.append(batch)
            size += batch.nbytes
            if size > BYTES_MAX:
                return None
    except (DataLost, GoneSincePlanned):
        return None
    return found


def note_ends(options: SourceOptions, ends: Positions) -> None:
    """Writes the ends to the state directory, atomically: a reader finds these or the previous ones."""
    assert options.state_directory is not None
    directory = Path(options.state_directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / ENDS, ends.to_json())


def read_together(options: SourceOptions, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    for one in ranges:
        yield from read(options, one)
