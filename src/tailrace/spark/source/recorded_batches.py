"""A stream over the recorded micro-batches of an earlier run: the same ends, in the same order.

A run that was recorded (`pipelines/state`) has one end for each of its batches. Played again, batch N ends where
batch N of that run has ended, and where nothing came in between, nothing comes: Spark then runs a batch without data,
or none, as it did the first time, since it decides that by the watermark. So rows are late where they were late.

One file has the ends, a line of JSON for each batch: the first is where the run began. When Spark asks for one more,
all batches that it is going to run are done, and a file beside says so.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from tailrace.client.cluster.cluster import cluster_for
from tailrace.spark.source.bounds import begin_of
from tailrace.spark.source.options import BadOptions, SourceOptions
from tailrace.spark.source.positions import Positions

IDLE_S = 0.5


class RecordedPlan:
    """Like `stream.StreamPlan`. The planning process lives as long as the query, so it can count."""

    def __init__(self, options: SourceOptions, path: str) -> None:
        self.options = options
        self._path = Path(path)
        self._ends = [Positions.from_json(json.loads(line)) for line in self._path.read_text().splitlines()]
        self._next = 0

    @property
    def newest(self) -> Positions:
        return self._ends[-1]

    def initial(self) -> Positions:
        return self._ends[0]

    def prepare_for_available_now(self) -> None:
        """There is nothing more than what is recorded in any case."""

    def next_end(self, start: Positions, limit: int | None) -> Positions:
        if self._next == len(self._ends):
            end_mark(self._path).touch()
            _wait_for_the_end()
        end = self._ends[self._next]
        self._check_not_before(start, end)
        self._next += 1
        return end

    def _check_not_before(self, start: Positions, end: Positions) -> None:
        for place, at in start.offsets.items():
            is_same = start.topic_ids.get(place.topic) == end.topic_ids.get(place.topic)
            if is_same and end.offsets.get(place, at) < at:
                raise BadOptions(
                    f"batch {self._next} of the recorded run ends at offset {end.offsets[place]} of {place}, and this "
                    f"query is at {at}: recorded batches are played from the first on, with a new checkpoint"
                )

    def begin(self, start: Positions, end: Positions) -> Positions:
        return begin_of(cluster_for(self.options.client), self.options, start, end)


def _wait_for_the_end() -> NoReturn:
    """Waits after the last recorded batch, until the replay stops the query and with it this process.

    Returning instead would let Spark run one more batch without data, which the recorded run did not have. If the
    parent process dies, this one exits.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(IDLE_S)
    sys.exit()


def end_mark(path: Path) -> Path:
    """The file that is there when all ends were handed out, and nothing is left to run."""
    return path.with_name(f"{path.name}.done")


def write_ends(path: Path, ends: list[Positions]) -> None:
    path.write_text("".join(json.dumps(end.to_json()) + "\n" for end in ends))
