"""Counts rows while they pass: how many came in and went out, and which windows of the output reach beyond the range
that was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

_ROWS, _CUT = "rows", "cut"
_WRITTEN = "tailrace_written"  # the name of the count in a query's progress


@dataclass(frozen=True, slots=True)
class Watch:
    """The row counts of one frame. Asking for them waits until the frame was written."""

    observation: "Observation"

    @property
    def rows(self) -> int:
        return int(self.observation.get[_ROWS] or 0)

    @property
    def cut(self) -> int | None:
        """Rows whose window began before the range, or ended behind it; None where that cannot be told."""
        found = self.observation.get
        return int(found[_CUT] or 0) if _CUT in found else None


def watched(frame: "DataFrame", from_ms: int | None = None, to_ms: int | None = None) -> "tuple[DataFrame, Watch]":
    """The same frame, counted when it is written. With times, its windows are looked at, too."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    counts = [F.count(F.lit(1)).alias(_ROWS)]
    if (cut := _cut(frame, from_ms, to_ms)) is not None:
        counts.append(F.count_if(cut).alias(_CUT))
    return frame.observe(observation, *counts), Watch(observation)


def watched_stream(frame: "DataFrame") -> "DataFrame":
    """The same stream, whose progress then says how many rows were written: see `written_in`."""
    from pyspark.sql import functions as F

    return frame.observe(_WRITTEN, F.count(F.lit(1)).alias(_ROWS))


def written_in(progress: Mapping[str, Any]) -> int:
    return int(progress.get("observedMetrics", {}).get(_WRITTEN, {}).get(_ROWS) or 0)


def _cut(frame: "DataFrame", from_ms: int | None, to_ms: int | None) -> "Column | None":
    from pyspark.sql import functions as F

    found = F.lit(False)
    for name in _windows(frame):
        if from_ms is not None:
            found |= F.col(f"`{name}`.start") < F.lit(_moment(from_ms))
        if to_ms is not None:
            found |= F.col(f"`{name}`.end") > F.lit(_moment(to_ms))
    can_tell = _windows(frame) and (from_ms is not None or to_ms is not None)
    return found if can_tell else None


def _windows(frame: "DataFrame") -> list[str]:
    """Columns as `window` makes them."""
    from pyspark.sql.types import StructType, TimestampType

    def is_window(kind: Any) -> bool:
        return (
            isinstance(kind, StructType)
            and kind.names == ["start", "end"]
            and all(isinstance(one.dataType, TimestampType) for one in kind)
        )

    return [one.name for one in frame.schema if is_window(one.dataType)]


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
