"""`tailrace replay`: runs a pipeline over history, into another target, against any Kafka. Needs the `spark` extra."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.common import output
from tailrace.cli.common.connection import DEFAULT, Bootstrap
from tailrace.cli.common.options import AsJson, DryRun
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.pipelines.run import (
    Conf,
    File,
    Master,
    Packages,
    StateIn,
    require_topics,
    say_that_spark_ends,
    say_that_spark_starts,
    spark_conf,
)

if TYPE_CHECKING:
    from tailrace.spark.pipelines.pipeline import Pipeline
    from tailrace.spark.pipelines.replay.replay import Plan, Replayed
    from tailrace.spark.pipelines.sinks import Sink

_TOPIC = "topic:"

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Which pipeline, where the file has several.")]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="A time, such as yesterday or -2h.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="A time.")]
Into = Annotated[str | None, typer.Option("--into", metavar="PATH", help="For Parquet files; topic:NAME is a topic.")]
Exact = Annotated[bool, typer.Option("--exact", help="The batches of the live run again, with what was late in them.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in PATH.")]


def replay(
    file: File,
    name: Name = None,
    start: From = "earliest",
    end: To = "now",
    into: Into = None,
    exact: Exact = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    state: StateIn = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
) -> None:
    """Run a pipeline over history, into another place.

    \b
    tailrace replay pipelines.py --from yesterday --into out/again --dry-run
    tailrace replay pipelines.py big --into topic:big-again
    tailrace replay pipelines.py --exact --into out/as-it-was

    The live pipeline and its output are left alone. First it says what the range has, and what is missing from it:
    --dry-run ends there. docs/PIPELINES.md says how a replay may differ from live.
    """
    from tailrace.cli.pipelines import errors as spark_errors

    spark_errors.require_spark()
    with spark_errors.in_words():
        found = _pipeline(file, name)
        kept = state / found.name if state else None
        bounds: dict[str, Any] = {"start": start, "end": end, "mode": "exact" if exact else "batch", "state": kept}
        sink = _sink(into) if not dry_run else None
        settings_of_spark = spark_conf(conf, packages)
        require_topics(bootstrap, [found])
        plan = found.plan_replay(bootstrap, **bounds)
        if dry_run or not as_json:
            _show_plan(found, plan, as_json)
        if sink is None:
            return
        say_that_spark_starts(as_json)
        with output.share_bar(f"Replaying {found.name}") as tell:
            settings = {"overwrite": overwrite, "master": master, "conf": settings_of_spark, "on_progress": tell}
            done = found.replay(bootstrap, sink=sink, plan=plan, **bounds, **settings)
        _show_result(found, done, as_json)
        say_that_spark_ends(as_json)


def _pipeline(file: Path, name: str | None) -> "Pipeline":
    from tailrace.spark.pipelines.pipeline_file import pipelines_in

    found = pipelines_in(file, [name] if name else ())
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise Failure(f"{file} has several pipelines: say which of {names}", ExitCode.USAGE)
    return found[0]


def _sink(into: str | None) -> "Sink":
    from tailrace.spark.pipelines.sinks import Parquet, Topic

    if into is None:
        raise Failure("--into says where the result goes: a directory, or topic:NAME", ExitCode.USAGE)
    return Topic(into.removeprefix(_TOPIC)) if into.startswith(_TOPIC) else Parquet(into)


# In words


def _show_plan(found: "Pipeline", plan: "Plan", as_json: bool) -> None:
    extent = plan.extent
    if as_json:
        print(json.dumps(plan_as_json(found.name, plan)))
        return
    partitions = output.plural(len(extent.parts), "partition")
    what = f"{output.plural(extent.count, 'offset')} of {partitions}, about {output.size(extent.bytes)}"
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
        counts = {"rows_read": done.rows_read, "rows_corrupt": done.rows_corrupt, "rows_written": done.rows_written}
        after = {"cut_windows": done.cut_windows, "warnings": done.warnings, "took_seconds": done.seconds}
        print(json.dumps(plan_as_json(found.name, done.plan) | counts | after))
        return
    corrupt = done.rows_corrupt or None  # nothing is said of none
    every = ((done.rows_read, "read"), (corrupt, "corrupt"), (done.rows_written, "written"))
    said = "".join(f", {output.plural(count, 'row')} {what}" for count, what in every if count is not None)
    print(f"done in {done.seconds:.1f} s{said}")
    if done.cut_windows:
        print(f"  {output.number(done.cut_windows)} rows are of windows that an end of the range has cut")
    for warning in done.warnings:
        output.warn(warning)
