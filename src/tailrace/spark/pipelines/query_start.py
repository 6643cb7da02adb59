"""Starts the queries of a process one after another.

Two queries that Spark plans for the first time at the same moment have left a damaged collection behind in its Java
process: every task of every query then failed with `Illegal size 5 of collection, expected 7`. `start()` of a query
returns before Spark has planned anything. So a query has its turn until tasks of it run, it waits for records, or it
has ended; and for `TURN_S` at most, since a batch may be slow to plan.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.streaming.query import StreamingQuery

TURN_S = 60.0
_LOOK_S = 0.05
_starting = threading.Lock()


def start_in_turn(
    start: "Callable[[], StreamingQuery]", context: "SparkContext", stop: threading.Event
) -> "StreamingQuery | None":
    """The query; None where `stop` was set before its turn."""
    while not _starting.acquire(timeout=_LOOK_S):
        if stop.is_set():
            return None
    try:
        query, end = start(), time.monotonic() + TURN_S
        while not (_is_under_way(query, context) or stop.wait(_LOOK_S) or time.monotonic() > end):
            pass
        return query
    finally:
        _starting.release()


def _is_under_way(query: "StreamingQuery", context: "SparkContext") -> bool:
    """Returns whether the query was planned. A trigger is active between its empty first batch and the next."""
    if not query.isActive or _has_tasks(str(query.runId), context):
        return True
    return query.lastProgress is not None and not query.status["isTriggerActive"]


def _has_tasks(run: str, context: "SparkContext") -> bool:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(run)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return any(stage.numActiveTasks + stage.numCompletedTasks > 0 for stage in stages if stage is not None)
