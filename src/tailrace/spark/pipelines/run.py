"""`.run`: a pipeline as a live query, or once over the records that are there.

A query that fails is started again, after a second, two, four … a minute, since what it met may pass: a broker that
restarts, a disk that is full. It goes on from its checkpoint. After `HEALTHY` batches the count begins anew. What
cannot pass is not tried again: records that are gone, above all, and wrong options.

A failure of Spark's own that comes twice in the same words gets a new session, once: what is damaged in Spark's Java
process is met again by every restart in it. Where the session is ours, Java is started anew for all pipelines that
share it; a session that was given to us is followed by another in the same process.

Corrupt messages that have a sink of their own are written by a second query, with its own checkpoint and its own group
(`<group>-corrupt`): so each sink keeps what it promises, and windows and other state stay possible in the first. The
second one begins where the first began, which the first has written down before it reads anything; or where the first
is, if that has run without it.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.client.cluster.cluster import cluster_for
from tailrace.client.errors import ClientError
from tailrace.spark.pipelines.failures import (
    RunFailed,
    are_alike,
    is_of_spark,
    may_pass,
    reason_of,
    require_broker,
)
from tailrace.spark.pipelines.progress import Finished, Progress
from tailrace.spark.pipelines.query_start import start_in_turn
from tailrace.spark.pipelines.session import java_log
from tailrace.spark.pipelines.session.shared_session import SharedSession, shared_session
from tailrace.spark.pipelines.sinks import QuerySettings, Sink, check_sink
from tailrace.spark.pipelines.state.history import Keeper
from tailrace.spark.pipelines.state.state import State
from tailrace.spark.pipelines.stores import StoreError
from tailrace.spark.source.bounds import partitions_of, topics_of
from tailrace.spark.source.options import FIRST, BadOptions, OnDataLoss, source_options
from tailrace.spark.source.positions import Positions
from tailrace.util.shutdown import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.spark.pipelines.pipeline import Pipeline

logger = logging.getLogger("tailrace.spark.pipelines")

HEALTHY = 5  # batches after which earlier failures are forgotten
MOST_RESTARTS, MOST_RESTARTS_ONCE = 10, 3
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
_POLL_S = 0.2
_SIGNAL_S = 2.0  # in which a signal that Java was sent reaches us, too
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


@dataclass(slots=True)
class Outcome:
    """The result of a run, so far."""

    batches: int = 0
    rows: int = 0
    restarts: int = 0


def run(
    pipeline: "Pipeline",
    bootstrap: str,
    *,
    every: str | None = None,
    once: bool = False,
    state: "str | Path | State | None" = None,
    spark: "SparkSession | SharedSession | None" = None,
    master: str | None = None,
    options: Mapping[str, str] | None = None,
    sink: Sink | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_data_loss: str = "fail",
    max_restarts: int | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Runs until it is stopped: by ctrl-C or SIGTERM in the main thread, or by the event `stop`.

    `every` is a cadence such as "10 seconds"; without, a batch begins when the last one is done. `once` ends when what
    is there now has been read. `state` is the directory to keep things in. `options` are more of the format, `sink` is
    one instead of the pipeline's. `on_progress` is called with each finished batch: see `progress.py`.

    Raises RunFailed where nothing listens at the addresses of the broker, or where the query failed for good,
    AlreadyRunning, OutputMismatch where the state is not that of the output, and what Spark says of a wrong plan.
    """
    kept = State.of(pipeline.name, state)
    if sink is not None:
        check_sink(sink)
    read = pipeline.read_options(bootstrap, options)
    read |= {"group": pipeline.group, "onDataLoss": loss_choice(on_data_loss), "stateDirectory": str(kept.directory)}
    trigger = {"availableNow": True} if once else {"processingTime": cadence(every)}
    sinks = (sink or pipeline.sink, pipeline.decode.side)
    client = pipeline.client_options(bootstrap, options)
    _require_broker(pipeline.name, client)
    with kept.locked():
        kept.claim(pipeline.name, pipeline.source, (one.place for one in sinks if one and one.place))
        live = _Live(
            pipeline=pipeline,
            sessions=shared_session(spark, pipeline.name, master),
            state=kept,
            sink=sinks[0],
            read=read,
            start=pipeline.start_options(),
            client=client,
            trigger=trigger,
            on_progress=on_progress,
        )
        # Behind the session, since making one takes ctrl-C for Spark.
        with nullcontext(stop) if stop else stopped_by_signals() as asked:
            return _until_java_ends(live, asked, _most(max_restarts, once))


def _require_broker(name: str, client: Mapping[str, str]) -> None:
    try:
        require_broker(client)
    except ClientError as error:
        raise RunFailed(f"{name}: {error}") from error


def loss_choice(given: str) -> str:
    try:
        return OnDataLoss(given).value
    except ValueError:
        raise BadOptions(f"on_data_loss is one of {', '.join(OnDataLoss)}, and not {given!r}") from None


def cadence(every: str | None) -> str:
    """Returns the cadence in Spark's words: `10 seconds` for 10s."""
    if every is None:
        return "0 seconds"
    if short := re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h)\s*", every):
        return f"{short[1]} {_UNITS[short[2]]}"
    if re.fullmatch(r"\s*\d+\s+[a-z]+\s*", every, re.IGNORECASE):
        return every
    raise BadOptions(f"every is a cadence such as '10 seconds' or 10s, and not {every!r}")


def _most(given: int | None, once: bool) -> int:
    if given is not None:
        return given
    return MOST_RESTARTS_ONCE if once else MOST_RESTARTS


def _until_java_ends(live: "_Live", stop: threading.Event, most: int) -> Outcome:
    """A signal to all of our processes ends Java before us, and that is no failure."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return _keep_running(live, stop, most)
    except (Py4JError, PySparkException, ConnectionError) as error:
        is_gone = not isinstance(error, PySparkException | Py4JJavaError)
        if stop.wait(_SIGNAL_S) if is_gone else stop.is_set():
            return live.outcome
        if is_gone:
            raise RunFailed(f"{live.pipeline.name}: Spark's Java process has ended, or does not answer") from error
        raise


def _keep_running(live: "_Live", stop: threading.Event, most: int) -> Outcome:
    failures, reason = 0, ""
    live.settle_side()
    while True:
        batches = live.outcome.batches
        error = live.run_until(stop)
        if error is None:
            return live.outcome
        if live.outcome.batches - batches >= HEALTHY:
            failures, reason = 0, ""
        if not live.has_lost_its_session:  # else another pipeline has replaced it
            failures += 1
            _check(live, error, failures, most)
            if _waits_for_stop(live, error, failures, stop):
                return live.outcome
            if failures == 2 and is_of_spark(error) and are_alike(reason, reason_of(error)):
                logger.warning("%s failed twice in the same way: it gets a new Spark session", live.pipeline.name)
                live.sessions.replace(live.session)
            reason = reason_of(error)
        live.outcome.restarts += 1


def _waits_for_stop(live: "_Live", error: Exception, failures: int, stop: threading.Event) -> bool:
    """Waits before the next attempt. Returns whether the run was stopped meanwhile."""
    delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (failures - 1))
    logger.warning("%s failed, and is started again in %.0f s: %s", live.pipeline.name, delay, _explained(error))
    return stop.wait(delay)


def _check(live: "_Live", error: Exception, failures: int, most: int) -> None:
    """Raises RunFailed if there is no other attempt, and DamagedCheckpoint."""
    live.state.check_checkpoints(has_failed=True)
    if failures > most or not may_pass(error):
        raise RunFailed(f"{live.pipeline.name}: {_explained(error)}") from error


def _explained(error: BaseException) -> str:
    """Returns the reason in a sentence, and where Java's stack trace is."""
    from pyspark.errors import PySparkException

    log = None if not isinstance(error, PySparkException) else java_log.written()
    return reason_of(error) + (f" (stack trace: {log})" if log else "")


@dataclass(slots=True)
class _Live:
    """Starts the queries of a pipeline, as often as needed."""

    pipeline: "Pipeline"
    sessions: SharedSession
    state: State
    sink: Sink
    read: Mapping[str, str]
    start: Mapping[str, str]
    client: Mapping[str, str]
    trigger: Mapping[str, Any]
    on_progress: Callable[[Progress], None] | None = None
    outcome: Outcome = field(default_factory=Outcome)
    session: "SparkSession" = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.sessions.current

    @property
    def has_lost_its_session(self) -> bool:
        return self.session is not self.sessions.current

    def run_until(self, stop: threading.Event) -> Exception | None:
        """Runs the queries. Returns the error that ended them, or None if they were stopped or are done."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self.session = self.sessions.current
        try:
            return self._run_queries(stop)
        except (Py4JError, PySparkException, ConnectionError) as error:
            if not self.has_lost_its_session:
                raise
            return error

    def _run_queries(self, stop: threading.Event) -> Exception | None:
        self.state.check_checkpoints()
        keeper = self.state.keeper()
        keeper.keep()
        queries: list[StreamingQuery] = []
        try:
            if not self._add(queries, self._start, stop):
                return None
            finished = Finished(queries[0])
            try:
                return self._watch(queries, finished, keeper, stop)
            finally:
                for query in queries:
                    query.stop()
                self._note(finished, keeper)
        except (ClientError, StoreError) as error:
            return error

    def _watch(
        self, queries: "list[StreamingQuery]", finished: Finished, keeper: Keeper, stop: threading.Event
    ) -> Exception | None:
        while not stop.wait(_POLL_S):
            are_active = [query.isActive for query in queries]
            self._note(finished, keeper)
            if failed := [error for query in queries if (error := query.exception()) is not None]:
                return failed[0]
            if len(queries) == 1 and self._has_side_to_start():
                self._add(queries, self._start_side, stop)
            elif not any(are_active):
                return None
        return None

    def _add(
        self, queries: "list[StreamingQuery]", start: "Callable[[], StreamingQuery]", stop: threading.Event
    ) -> bool:
        """Starts a query, and returns whether that succeeded. Raises RunFailed if the sink does not start."""
        from py4j.protocol import Py4JJavaError

        try:
            query = start_in_turn(start, self.session.sparkContext, stop)
        except Py4JJavaError as error:
            self.state.check_checkpoints(has_failed=True)
            raise RunFailed(f"{self.pipeline.name}: {_explained(error)}") from error
        if query is not None:
            queries.append(query)
        return query is not None

    def _start(self) -> "StreamingQuery":
        pipeline = self.pipeline
        frame = pipeline.frame_of(self._messages(self.start))
        return self.sink.write_stream(frame, self._settings(pipeline.name, self.state.checkpoint, pipeline.output_mode))

    # The query of corrupt messages

    def settle_side(self) -> None:
        """Determines where the second query begins, once and for all."""
        if self.pipeline.decode.side is None or self.state.knows_side():
            return
        batches = self.state.batches()
        self.state.note_side_start(batches[-1].lowest if batches else None)
        if batches:
            logger.warning(
                "%s has run without a sink for corrupt messages: those that it has read already do not go there",
                self.pipeline.name,
            )

    def _has_side_to_start(self) -> bool:
        return self.pipeline.decode.side is not None and bool(self.state.batches())

    def _start_side(self) -> "StreamingQuery":
        name, decode = f"{self.pipeline.name}-corrupt", self.pipeline.decode
        assert decode.side is not None
        frame = decode.corrupt_rows(self._messages({"group": f"{self.pipeline.group}-corrupt"} | self._side_start()))
        return decode.side.write_stream(frame, self._settings(name, self.state.corrupt_checkpoint, "append"))

    def _side_start(self) -> dict[str, str]:
        """Returns where the second query begins. Partitions that did not exist then are read from their beginning."""
        if any(self.state.corrupt_checkpoint.glob("offsets/*")):
            return {}  # it goes on where it is
        begin = Positions.from_json(self.state.side_start() or self.state.batches()[0].lowest).offsets
        options = source_options(self.read, is_stream=True)
        places = partitions_of(topics_of(cluster_for(options.client), options), options)
        offsets = {place: begin.get(place, FIRST) for place in places}
        return {"startingOffsets": json.dumps(Positions(offsets).to_json())}

    # What both have

    def _messages(self, more: Mapping[str, str]) -> "DataFrame":
        return self.session.readStream.format("tailrace").options(**{**self.read, **more}).load()

    def _settings(self, name: str, checkpoint: Path, output_mode: str) -> QuerySettings:
        return QuerySettings(name, str(checkpoint), self.trigger, output_mode, self.client)

    def _note(self, finished: Finished, keeper: Keeper) -> None:
        """Reports finished batches to `on_progress`, and records them for a replay."""
        keeper.keep()  # before: it puts aside what is of another checkpoint
        for progress in finished.look(self.state.ends):
            self.outcome.batches += 1
            self.outcome.rows += progress["rows"]
            self.state.add_progress(progress)
            if self.on_progress is not None:
                self.on_progress(progress)
