"""`tailrace replay`: a pipeline over history, into another place. Works against any Kafka; needs the `spark` extra."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli import output
from tailrace.cli.connection import DEFAULT, Bootstrap
from tailrace.cli.options import AsJson, DryRun
from tailrace.cli.output import ExitCode, Failure
from tailrace.cli.pipeline_files import PipelineFile, StateDirectory, one_pipeline, spark_in_words

if TYPE_CHECKING:
    from tailrace.spark.pipelines.pipeline import Pipeline
    from tailrace.spark.pipelines.replaying import Plan, Replayed
    from tailrace.spark.pipelines.sinks import Sink

_TOPIC = "topic:"

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which pipeline, where the file has several.")]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="earliest, or a time: yesterday, -2h, 2026-11-15T10:00.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="now, or a time.")]
Into = Annotated[str | None, typer.Option("--into", metavar="PATH|topic:NAME", help="A directory for Parquet files, or a topic.")]
Exact = Annotated[bool, typer.Option("--exact", help="The batches of the live run again, with what was late in them.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in PATH.")]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Of a Spark cluster; else this machine.")]


def replay(
    file: PipelineFile,
    name: Name = None,
    start: From = "earliest",
    end: To = "now",
    into: Into = None,
    exact: Exact = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    state: StateDirectory = None,
    master: Master = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
) -> None:
    """Run a pipeline over history, into another place.

    \b
    tailrace replay pipelines.py --from yesterday --to now --into out/again --dry-run

    The live pipeline and its output are left alone. First it says what the range has, and what is missing from it;
    --dry-run ends there. docs/PIPELINES.md says how a replay can differ from live.
    """
    with spark_in_words():
        found = one_pipeline(file, name)
        bounds: dict[str, Any] = {"start": start, "end": end, "mode": "exact" if exact else "batch", "state": state}
        plan = found.plan_replay(bootstrap, **bounds)
        if dry_run or not as_json:
            _show_plan(found, plan, as_json)
        if dry_run:
            return
        sink = _sink(into)
        with output.share_bar(f"Replaying {found.name}") as advance:
            done = found.replay(
                bootstrap, sink=sink, plan=plan, overwrite=overwrite, master=master, on_progress=advance, **bounds
            )
        _show_result(found, done, as_json)


def _sink(into: str | None) -> "Sink":
    from tailrace.spark.pipelines.sinks import Parquet, Topic

    if into is None:
        raise Failure("--into says where the result goes: a directory, or topic:NAME", ExitCode.USAGE)
    return Topic(into.removeprefix(_TOPIC)) if into.startswith(_TOPIC) else Parquet(str(Path(into)))


# In words


def _show_plan(found: "Pipeline", plan: "Plan", as_json: bool) -> None:
    extent = plan.extent
    if as_json:
        print(json.dumps(plan_as_json(found.name, plan)))
        return
    partitions = output.plural(len(extent.parts), "partition")
    what = f"{output.number(extent.count)} offsets of {partitions}, about {output.size(extent.bytes)}"
    print(f"{found.name}: {what}; {extent.completeness}")
    if plan.batches:
        print(f"  the live run again, batch by batch: {len(plan.batches):,} of them")
    for gap in extent.gaps:
        print(f"  {gap}")
    if plan.late_in_live:
        print(f"  live left out {output.number(plan.late_in_live)} rows or more as too late")
    if plan.seconds is not None:
        print(f"  about {plan.seconds:.0f} s, at the pace of the live run")


def plan_as_json(name: str, plan: "Plan") -> dict[str, Any]:
    extent = plan.extent
    return {
        "pipeline": name,
        "mode": plan.mode,
        "completeness": extent.completeness,
        "gaps": [str(gap) for gap in extent.gaps],
        "offsets": extent.count,
        "bytes": extent.bytes,
        "seconds": plan.seconds,
        "late_in_live": plan.late_in_live,
        "batches": len(plan.batches) or None,
        "partitions": [
            {"topic": part.place.topic, "partition": part.place.partition, "from": part.start, "to": part.end}
            for part in extent.parts
        ],
    }


def _show_result(found: "Pipeline", done: "Replayed", as_json: bool) -> None:
    if as_json:
        counts = {"rows_read": done.rows_read, "rows_written": done.rows_written, "cut_windows": done.cut_windows}
        after = {"warnings": done.warnings, "took_seconds": done.seconds}
        print(json.dumps(plan_as_json(found.name, done.plan) | counts | after))
        return
    counts = ((done.rows_read, "read"), (done.rows_written, "written"))
    said = "".join(f", {output.number(count)} rows {what}" for count, what in counts if count is not None)
    print(f"done in {done.seconds:.1f} s{said}")
    if done.cut_windows:
        print(f"  {output.number(done.cut_windows)} rows are of windows that an end of the range has cut")
    for warning in done.warnings:
        output.warn(warning)
