"""`.replay`: plans and runs a pipeline over history, into another target, and leaves the live run alone.

`mode="batch"` reads a closed range of the log as one batch. Rows that came too late for the live run count here, since
a batch has no watermark; on windows that are closed, and where live has dropped nothing, the two say the same.

`mode="exact"` runs the stream again over the very batches that the live run has recorded (`state/`,
`source/recorded_batches`), those without data included, from its first one on: what was late is late again, and the
result is live's, row by row, in some order. Its watermarks are compared with live's, batch by batch (`exact_replay`).

`plan_replay` says what the range has and what is missing from it (`replay_range`), before anything is read. `Replayed`
says how the result may differ from live's, and how many windows the ends of the range have cut.
"""

import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.spark.pipelines.failures import require_broker
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.replay import exact_replay
from tailrace.spark.pipelines.replay.repeatability import repeatability
from tailrace.spark.pipelines.replay.replay_range import (
    EARLIEST,
    NOW,
    Completeness,
    End,
    ReplayRange,
    When,
    replay_range_of,
    start_from,
    stop_from,
)
from tailrace.spark.pipelines.replay.row_counts import watched, watched_stream
from tailrace.spark.pipelines.replay.targets import check_place, clear
from tailrace.spark.pipelines.session.session import any_session
from tailrace.spark.pipelines.sinks import Call, Console, QuerySettings, Sink, Topic, check_sink
from tailrace.spark.pipelines.state.history import Batch
from tailrace.spark.pipelines.state.state import State
from tailrace.spark.source.options import BadOptions
from tailrace.spark.source.positions import Positions

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark.pipelines.pipeline import Pipeline

logger = logging.getLogger("tailrace.spark.pipelines.replay")

ROWS_A_TASK = 1_000_000  # so that a long replay can show how far it is, and a task that is tried again is not long
LOOK_S = 0.2
TELLING_ROWS = 10_000
_IN_STREAMS = "a batch lacks some operators that streams have: mode='exact' runs a stream"

OnProgress = Callable[[float], None]  # which share is done


class Mode(StrEnum):
    BATCH = "batch"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Plan:
    """The range that a replay would read. Planning reads only a few first records."""

    mode: Mode
    extent: ReplayRange
    batches: tuple[Batch, ...] = ()  # of live, for an exact one
    late_in_live: int | None = None  # rows of the range; None where no live run is recorded
    rows_per_second: float | None = None  # of live, at its best

    @property
    def seconds(self) -> float | None:
        """About how long it takes, by what live has done."""
        return self.extent.count / self.rows_per_second if self.rows_per_second else None


@dataclass(frozen=True, slots=True)
class Replayed:
    plan: Plan
    seconds: float
    rows_read: int | None = None  # None, as what follows, where it cannot be counted
    rows_corrupt: int | None = None
    rows_written: int | None = None
    cut_windows: int | None = None  # rows of windows that reach over an end of the range, where that is a time
    warnings: tuple[str, ...] = ()


def plan_replay(
    pipeline: "Pipeline",
    bootstrap: str,
    *,
    start: When = EARLIEST,
    end: When = NOW,
    mode: str = Mode.BATCH,
    state: str | Path | State | None = None,
    options: Mapping[str, str] | None = None,
) -> Plan:
    """Without Spark. Raises BadOptions, and what the client raises."""
    read, kept = pipeline.read_options(bootstrap, options), State.of(pipeline.name, state)
    require_broker(pipeline.client_options(bootstrap, options))
    if _mode(mode) is Mode.EXACT:
        return _exact_plan(read, kept, start, end)
    extent = replay_range_of(read, start_from(start), stop_from(end))
    return _with_live(Plan(Mode.BATCH, extent), kept)


def replay(
    pipeline: "Pipeline",
    bootstrap: str,
    *,
    sink: Sink,
    start: When = EARLIEST,
    end: When = NOW,
    mode: str = Mode.BATCH,
    state: str | Path | State | None = None,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    options: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    overwrite: bool = False,
    plan: Plan | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Replayed:
    """Runs it; `state` is where the live run keeps its things, by default where it does by default. Files are written
    to a place where none are, or `overwrite`n. `conf` are settings of a session that is made for it. Raises BadOptions
    before anything is written.
    """
    check_sink(sink)
    kept = State.of(pipeline.name, state)
    check_place(pipeline, sink, kept, overwrite=overwrite)
    planned = plan or plan_replay(pipeline, bootstrap, start=start, end=end, mode=mode, state=kept, options=options)
    for gap in planned.extent.gaps:
        logger.warning("replay of %s: %s", pipeline.name, gap)
    session = any_session(f"{pipeline.name}-replay", master, given=spark, conf=conf)
    read, client = pipeline.read_options(bootstrap, options), pipeline.client_options(bootstrap, options)
    job = _Job(pipeline, sink, planned, kept, session, read, client, overwrite, on_progress)
    return _run_exact(job) if planned.mode is Mode.EXACT else _run_batch(job)


@dataclass(frozen=True, slots=True)
class _Job:
    pipeline: "Pipeline"
    sink: Sink
    plan: Plan
    state: State
    session: "SparkSession"
    read: Mapping[str, str]
    client: Mapping[str, str]
    overwrite: bool
    on_progress: OnProgress


# In one batch


def _run_batch(job: _Job) -> Replayed:
    from pyspark.sql import Observation

    extent, began = job.plan.extent, time.monotonic()
    tasks = {"minPartitions": str(-(-extent.count // ROWS_A_TASK))}
    source = job.session.read.format("tailrace").options(**{**tasks, **job.read, **extent.source_options()}).load()
    messages, read = watched(_within(source, extent))
    with _hint_at_streams():
        frame = job.pipeline.frame_of(messages, corrupt := Observation())
        traits = repeatability(frame)
        if traits.streaming_only:
            raise BadOptions(f"{', '.join(traits.streaming_only)}: {_IN_STREAMS}")
        output, written = watched(frame, extent.from_ms, extent.to_ms)
        with _following(job.session, job.on_progress):
            job.sink.write_batch(output, job.client, _write_mode(job))
    seconds = time.monotonic() - began
    warnings = tuple(f"{name} gives another answer each time" for name in traits.unrepeatable)
    if isinstance(job.sink, Call | Console):  # which may look at the rows any number of times, or never
        return Replayed(job.plan, seconds, warnings=warnings)
    return Replayed(job.plan, seconds, read.rows, corrupt.get["corrupt"], written.rows, written.cut, warnings)


def _write_mode(job: _Job) -> str:
    if isinstance(job.sink, Topic):
        return "append"
    return "overwrite" if job.overwrite else "error"


def _within(messages: "DataFrame", extent: ReplayRange) -> "DataFrame":
    """Those whose own time is of the range, wherever they stand in the log."""
    from pyspark.sql import functions as F

    for limit, is_start in ((extent.from_ms, True), (extent.to_ms, False)):
        if limit is not None:
            moment = F.timestamp_millis(F.lit(limit))
            messages = messages.where(F.col("timestamp") >= moment if is_start else F.col("timestamp") < moment)
    return messages


@contextmanager
def _hint_at_streams() -> Iterator[None]:
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        error.add_note(_IN_STREAMS)
        raise


# As it was


def _run_exact(job: _Job) -> Replayed:
    began, batches = time.monotonic(), job.plan.batches
    place = job.state.directory / "replays" / time.strftime("%Y%m%dT%H%M%S")
    place.mkdir(parents=True)
    try:
        exact_replay.write_batches(place / "ends.jsonl", batches)
        read = {**job.read, "recordedBatches": str(place / "ends.jsonl")}
        frame = job.pipeline.frame_of(job.session.readStream.format("tailrace").options(**read).load())
        _check_repeatable(frame)
        if job.overwrite:
            clear(job.sink)
        settings = QuerySettings(
            f"{job.pipeline.name}-replay", str(place / "checkpoint"), {}, job.pipeline.output_mode, job.client
        )
        query = job.sink.write_stream(watched_stream(frame), settings)
        counts = exact_replay.play(query, place / "ends.jsonl", place / "checkpoint", batches, job.on_progress)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seconds = time.monotonic() - began
    is_counted = counts.batches == len(batches) and not isinstance(job.sink, Call | Console)
    if not is_counted:
        return Replayed(job.plan, seconds)
    return Replayed(job.plan, seconds, counts.read, counts.corrupt, counts.written)


def _check_repeatable(frame: "DataFrame") -> None:
    traits = repeatability(frame)
    if traits.unrepeatable:
        names = ", ".join(traits.unrepeatable)
        raise BadOptions(f"{names}: another answer each time, so that no replay is exact; take it from the message")


def _exact_plan(read: Mapping[str, str], kept: State, start: When, end: When) -> Plan:
    if start != EARLIEST:
        raise BadOptions("an exact replay begins where the live run began: what it says may depend on all before")
    until = stop_from(end)
    if until.offsets:
        raise BadOptions("an exact replay ends with a batch of the live run: say until when")
    batches = exact_replay.recorded(kept.batches(), until.time_ms)
    starts, ends = exact_replay.starts_of(batches), exact_replay.ends_of(batches)
    extent = replay_range_of(_assigned(read, starts), End(offsets=starts), End(offsets=ends))
    if extent.completeness is not Completeness.COMPLETE:
        raise BadOptions("not all that the live run has read may be there: " + "; ".join(map(str, extent.gaps)))
    return _with_live(Plan(Mode.EXACT, extent, tuple(batches)), kept)


def _assigned(read: Mapping[str, str], places: Iterable[TopicPartition]) -> dict[str, str]:
    """The same options, for the partitions that there were."""
    indexes: dict[str, list[int]] = {}
    for place in sorted(places):
        indexes.setdefault(place.topic, []).append(place.partition)
    return {name: value for name, value in read.items() if not name.startswith("subscribe")} | {
        "assign": json.dumps(indexes)
    }


# What live has done


def _with_live(plan: Plan, kept: State) -> Plan:
    """The same, with what is known of live. Of rows that it has dropped, Spark counts groups: so many at least."""
    progress = [one for one in kept.progress() if one["end"]]
    if not progress:
        return plan
    late = sum(one["late"] for one in progress if _touches(one, plan.extent))
    rates = [one["rows_per_second"] for one in progress if one["rows"] >= TELLING_ROWS]
    return replace(plan, late_in_live=late, rows_per_second=max(rates, default=None))


def _touches(one: Progress, extent: ReplayRange) -> bool:
    """Whether a batch of live has read some of the range, or closed windows after it did."""
    begin, end = Positions.from_json(one["start"] or {}).offsets, Positions.from_json(one["end"]).offsets
    return any(
        part.place in end and end[part.place] > part.start and begin.get(part.place, 0) < part.end
        for part in extent.parts
    )


# Settings


def _mode(given: str) -> Mode:
    try:
        return Mode(given)
    except ValueError:
        raise BadOptions(f"mode is {' or '.join(Mode)}, and not {given!r}") from None


@contextmanager
def _following(session: "SparkSession", on_progress: OnProgress) -> Iterator[None]:
    """Tells which share of the tasks is done, of those that are known so far: the jobs of this thread, meanwhile."""
    context, over, group = session.sparkContext, threading.Event(), f"replay-{secrets.token_hex(4)}"

    def look() -> None:
        most = 0.0
        while not over.wait(LOOK_S):
            most = max(most, _share_done(context.statusTracker(), group))
            on_progress(most)

    thread = threading.Thread(target=look, name="replay-progress", daemon=True)
    context.setJobGroup(group, "replay")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _share_done(tracker: "StatusTracker", group: str) -> float:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return sum(done for done, _ in counts) / max(1, sum(total for _, total in counts))
