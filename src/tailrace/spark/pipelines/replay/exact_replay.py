"""Runs the recorded batches of the live run again, and compares the two runs.

Spark's own checkpoint of the second run is compared with what was kept of the first: the same ends, and above all the
same watermarks, or rows would be late in one and not in the other.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.spark.pipelines.progress import Finished, summary
from tailrace.spark.pipelines.replay.row_counts import written_in
from tailrace.spark.pipelines.state.history import Batch, finished
from tailrace.spark.source.options import BadOptions
from tailrace.spark.source.positions import Offsets, Positions
from tailrace.spark.source.recorded_batches import end_mark, write_ends

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.05
_REPORT_S = 10.0
_CHANGED = "Was the pipeline's code changed? mode='batch' does not depend on how live was cut into batches"


class NotExact(Exception):
    """The second run went another way than the first."""


@dataclass(slots=True)
class Counts:
    """Spark's counts of rows and batches."""

    batches: int = 0
    read: int = 0
    corrupt: int = 0
    written: int = 0

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        for report in reports:
            found = summary(report)
            self.batches += 1
            self.read += found["rows"]
            self.corrupt += found["corrupt"] or 0
            self.written += written_in(report)


def recorded(batches: Sequence[Batch], until_ms: int | None) -> list[Batch]:
    """Those that had begun by then. Raises BadOptions where some are not known any more."""
    chosen = [batch for batch in batches if until_ms is None or batch.timestamp_ms <= until_ms]
    if not chosen:
        raise BadOptions("the live run has recorded no batch of that time: mode='exact' plays its batches again")
    ids = [batch.id for batch in chosen]
    if ids != list(range(len(ids))):
        missing = next(number for number in range(ids[-1]) if number not in ids)
        raise BadOptions(f"batch {missing} of the live run is not recorded: mode='exact' needs each of them")
    return chosen


def starts_of(batches: Sequence[Batch]) -> dict[TopicPartition, int]:
    """Returns the offset at which each partition was first read."""
    found: dict[TopicPartition, int] = {}
    for batch in batches:
        found = dict(Positions.from_json(batch.end).offsets) | found
    return found


def ends_of(batches: Sequence[Batch]) -> Offsets:
    return Positions.from_json(batches[-1].end).offsets


def write_batches(path: Path, batches: Sequence[Batch]) -> None:
    write_ends(path, [Positions.from_json(batch.end) for batch in batches])


def play(
    query: "StreamingQuery",
    ends: Path,
    checkpoint: Path,
    batches: Sequence[Batch],
    on_progress: Callable[[float], None],
) -> Counts:
    """Waits until as many batches are done, and stops the query. Raises what the query raises, and NotExact."""
    compared, reports, counts = 0, Finished(query), Counts()
    try:
        while compared < len(batches):
            time.sleep(LOOK_S)
            is_over = end_mark(ends).exists()  # looked at first: what is finished then is all
            if not query.isActive:
                query.awaitTermination()  # raises what it ended with
            for again in finished(checkpoint, compared - 1):
                compare(again, batches[again.id])
                compared += 1
                on_progress(compared / len(batches))
            counts.add(reports.look_raw())
            if compared < len(batches) and (is_over or not query.isActive):
                raise NotExact(f"it has {compared} batches, and live had {len(batches)}. {_CHANGED}")
        end = time.monotonic() + _REPORT_S
        while counts.batches < len(batches) and query.isActive and time.monotonic() < end:
            time.sleep(LOOK_S)  # Spark reports a batch after it has written that it is finished
            counts.add(reports.look_raw())
    finally:
        query.stop()
    return counts


def compare(again: Batch, first: Batch) -> None:
    if Positions.from_json(again.end) != Positions.from_json(first.end):
        raise NotExact(f"batch {first.id} ends elsewhere the second time. {_CHANGED}")
    if again.watermark_ms != first.watermark_ms:
        raise NotExact(
            f"batch {first.id} had the watermark {first.watermark_ms}, and now it has {again.watermark_ms}: other rows "
            f"are late. {_CHANGED}"
        )
