"""What Spark reports of a finished batch, as a small dict that becomes a line of JSON.

batch        its number
at           when it began, in UTC
rows         how many messages it read, and `rows_per_second` of it. At most as many as its offsets: Spark may read them
             several times, for an `orderBy` or a join of a frame with itself
corrupt      how many of them were corrupt, and how many tombstones: null where nothing was counted
late         rows that came behind the watermark, and were left out of windows
watermark    null where there is none
start, end   offsets, as the checkpoint has them
lag          how many offsets it was behind the end of its topics when it was noted; null where that is not known
behind       the same by partition, as Spark's connector reports it: minOffsetsBehindLatest, maxOffsetsBehindLatest,
             avgOffsetsBehindLatest; null where that is not known
duration_ms  by phase, and `total`
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.decoders import COUNTED

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Progress = dict[str, Any]
Ends = Mapping[str, Mapping[str, int]]  # of topics, by partition

KEPT = ("batch", "at", "rows", "rows_per_second", "corrupt", "tombstones", "late", "start", "end")

_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


class Finished:
    """The batches that a query has finished since one last looked, from the few that Spark remembers."""

    def __init__(self, query: "StreamingQuery") -> None:
        self._query = query
        self._seen = -1

    def look(self, ends: Callable[[], Ends | None]) -> Iterator[Progress]:
        """`ends` says where the topics end, which Spark may not know (`small_batches.py`)."""
        for one in self.look_raw():
            yield summary(one, ends)

    def look_raw(self) -> Iterator[Mapping[str, Any]]:
        """Yields the reports as Spark makes them."""
        last = self._query.lastProgress
        if last is None or last.batchId < self._seen or (last.batchId == self._seen and _has_run(last)):
            return
        is_next = _has_run(last) and last.batchId == self._seen + 1
        for one in [last] if is_next else self._query.recentProgress:
            if one.batchId > self._seen and _has_run(one):
                self._seen = one.batchId
                yield json.loads(one.json)


def summary(progress: Mapping[str, Any], ends: Callable[[], Ends | None] = lambda: None) -> Progress:
    source = progress["sources"][0] if progress["sources"] else {}
    counts = progress.get("observedMetrics", {}).get(COUNTED, {})
    watermark = progress.get("eventTime", {}).get("watermark")
    duration = dict(progress["durationMs"])
    latest = source.get("latestOffset") or ends()
    offsets = offsets_between(source.get("startOffset"), source.get("endOffset"))
    # Fewer where records are gone; 0 where no row was looked at.
    rows = min(progress["numInputRows"] or offsets, offsets)
    total = duration.pop("triggerExecution", 0)
    return {
        "batch": progress["batchId"],
        "at": progress["timestamp"],
        "rows": rows,
        "rows_per_second": round(rows * 1000 / total) if total else None,
        "corrupt": counts.get("corrupt"),
        "tombstones": counts.get("tombstones"),
        "late": sum(operator.get("numRowsDroppedByWatermark", 0) for operator in progress.get("stateOperators", [])),
        "watermark": None if watermark == _NO_WATERMARK else watermark,
        "start": source.get("startOffset"),
        "end": source.get("endOffset"),
        "lag": lag(source.get("endOffset"), latest),
        "behind": behind(source.get("endOffset"), latest),
        "duration_ms": duration | {"total": total},
    }


def to_keep(progress: Progress) -> Progress:
    """Returns the part of a progress report that is kept on disk for each batch."""
    return {name: progress[name] for name in KEPT} | {"duration_ms": {"total": progress["duration_ms"]["total"]}}


def lag(end: Ends | None, latest: Ends | None) -> int | None:
    return None if not end or not latest else sum(_distances(end, latest))


def behind(end: Ends | None, latest: Ends | None) -> dict[str, float] | None:
    found = _distances(end, latest) if end and latest else []
    if not found:
        return None
    return {
        "minOffsetsBehindLatest": min(found),
        "maxOffsetsBehindLatest": max(found),
        "avgOffsetsBehindLatest": sum(found) / len(found),
    }


def offsets_behind(progress: Any) -> dict[str, float] | None:
    """Returns how many offsets a stream of the format `tailrace` is behind the end of its topics, from
    `query.lastProgress`: Spark's connector reports that as metrics of its source, which Spark takes from no source in
    Python. Returns None if `lastProgress` lacks the ends of the topics; with the option `prefetch=false` it has them.
    """
    if progress is None:
        return None
    source = json.loads(progress.json)["sources"][0]
    return behind(source["endOffset"], source["latestOffset"])


def _distances(end: Ends, latest: Ends) -> list[int]:
    """By partition. One that the batch did not know yet counts as read: the next batch writes down where it begins."""
    return [
        max(0, there - end.get(topic, {}).get(partition, there))
        for topic, partitions in latest.items()
        for partition, there in partitions.items()
    ]


def offsets_between(start: Ends | None, end: Ends | None) -> int:
    """Returns the number of offsets between the two. A partition that is not in `start` counts nothing."""
    return sum(
        max(0, to - (start or {}).get(topic, {}).get(partition, to))
        for topic, partitions in (end or {}).items()
        for partition, to in partitions.items()
    )


def _has_run(progress: Any) -> bool:
    """Spark also reports that there was nothing to do, under the number of the next batch."""
    return "addBatch" in progress.durationMs
