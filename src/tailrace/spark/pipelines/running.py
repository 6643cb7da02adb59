"""`.run`: a pipeline as a live query."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.session import any_session
from tailrace.spark.pipelines.sinks import QuerySettings, Sink
from tailrace.spark.pipelines.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has done."""

    batches: int
    rows: int
    restarts: int


def run(
    pipeline: "Pipeline",
    bootstrap: str,
    *,
    every: str | None = None,
    once: bool = False,
    state: str | Path | State | None = None,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    options: Mapping[str, str] | None = None,
    sink: Sink | None = None,
    on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    on_data_loss: str = "fail",
    max_restarts: int = 10,
) -> Outcome:
    kept = state if isinstance(state, State) else State.of(pipeline.name, state)
    session = spark or any_session(pipeline.name, master)
    read = pipeline.read_options(bootstrap, options) | pipeline.start_options() | {"group": pipeline.group}
    read |= {"onDataLoss": on_data_loss, "stateDirectory": str(kept.directory)}
    messages = session.readStream.format("tailrace").options(**read).load()
    trigger = {"availableNow": True} if once else {"processingTime": every or "0 seconds"}
    settings = QuerySettings(
        pipeline.name, str(kept.checkpoint), trigger, pipeline.output_mode, pipeline.client_options(bootstrap, options)
    )
    query = (sink or pipeline.sink).write_stream(pipeline.frame_of(messages), settings)
    query.awaitTermination()
    return Outcome(0, 0, 0)
