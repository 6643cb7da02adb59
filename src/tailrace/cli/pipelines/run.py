"""`tailrace run`: runs the pipelines of a Python file on Spark, against any Kafka."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from errno import ECONNREFUSED
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.common import output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, Connection, not_reachable
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.util.addresses import all_refuse
from tailrace.util.shutdown import on_signals

if TYPE_CHECKING:
    from tailrace.cli.pipelines.view import View
    from tailrace.spark.pipelines.pipeline import Pipeline
    from tailrace.spark.pipelines.run import Outcome

_LOOK_SECONDS = 0.1
_PACKAGES = "spark.jars.packages"

File = Annotated[Path, typer.Argument(metavar="FILE.py", help="Has functions with @tailrace.spark.pipeline.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these pipelines. May be repeated.")]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="A batch each 10s, 5m …; else at once.")]
Once = Annotated[bool, typer.Option("--once", help="End when what is there now has been read.")]
StateIn = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="[./tailrace-pipelines]")]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Of a Spark cluster. [this machine]")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Of Spark. May be repeated.")]
Packages = Annotated[
    list[str] | None, typer.Option("--packages", metavar="GROUP:NAME:VERSION", help="From Maven. May be repeated.")
]
OnDataLoss = Annotated[str, typer.Option("--on-data-loss", metavar="fail|earliest|report", help="See above.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON for each batch.")]


def run(
    file: File,
    names: Names = None,
    every: Every = None,
    once: Once = False,
    state: StateIn = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    on_data_loss: OnDataLoss = "fail",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
) -> None:
    """Run the pipelines of a Python file on Spark, until ctrl-C.

    \b
    tailrace run pipelines.py                     all of them, live
    tailrace run pipelines.py big --every 10s     one, a batch each ten seconds
    tailrace run pipelines.py --once              what is there now, and end
    tailrace run pipelines.py --json | jq .rows   a line for each batch
    tailrace run pipelines.py --conf spark.driver.memory=4g

    Each goes on where it was: its checkpoint is in DIR/NAME, and its group shows how far it is (`tailrace group show`).
    A query that fails is started again, except where records that it has not read are gone: then `fail` ends,
    `earliest` goes on without them, and `report` also writes them to DIR/NAME/losses.jsonl. One that is given up ends
    the others.
    """
    from tailrace.cli.pipelines import errors as spark_errors

    if every is not None and once:
        raise Failure("--every and --once exclude each other", ExitCode.USAGE)
    spark_errors.require_spark()
    with spark_errors.in_words():
        from tailrace.cli.pipelines.view import View
        from tailrace.spark.pipelines.pipeline_file import pipelines_in
        from tailrace.spark.pipelines.run import cadence, loss_choice
        from tailrace.spark.pipelines.session import java_log, shared_session
        from tailrace.spark.pipelines.state.state import DEFAULT as STATES

        cadence(every)
        loss_choice(on_data_loss)
        jobs = pipelines_in(file, names or ())
        settings_of_spark = spark_conf(conf, packages)
        require_topics(bootstrap, jobs)
        java_log.choose((state or Path(STATES)) / "spark.log")
        say_that_spark_starts(as_json)
        spark = shared_session.own(f"tailrace run {file.name}", master, **settings_of_spark)
        with View(as_json=as_json) as view:
            settings = {"every": every, "once": once, "spark": spark, "on_data_loss": on_data_loss}
            _run_all([_Runner(job, bootstrap, state, view, settings) for job in jobs])
        say_that_spark_ends(as_json)


def require_topics(bootstrap: str, jobs: "Sequence[Pipeline]") -> None:
    """Fails before Spark starts where a topic is missing, or where nothing listens. Topics of pipelines that reach
    their brokers in their own way (`kafka.*` options) are looked up later.
    """
    from tailrace.cli.common.topics.selection import is_internal, require

    plain = [job for job in jobs if not any(name.lower().startswith("kafka.") for name in job.options)]
    if plain:
        connection = Connection(bootstrap)
        topics = connection.metadata(connection.admin()).topics
        require([name for job in plain for name in job.topics], topics, bootstrap)
        for job in plain:
            if not any(job.reads(name) for name in topics if not is_internal(name)):
                output.warn(f"{job.name}: no topic at {bootstrap} matches {' or '.join(job.patterns)} yet")
    for job in jobs:
        options = {name.lower(): value for name, value in job.client_options(bootstrap).items()}
        if job not in plain and all_refuse(servers := options["kafka.bootstrap.servers"]):
            raise Failure(not_reachable(servers, os.strerror(ECONNREFUSED)), ExitCode.NOT_REACHABLE)


def spark_conf(conf: Iterable[str] | None, packages: Iterable[str] | None) -> dict[str, str]:
    """The settings of Spark that `--conf` and `--packages` say. Raises Failure."""
    found: dict[str, str] = {}
    if packages:
        found[_PACKAGES] = ",".join(packages)
    for text in conf or ():
        name, equals, value = text.partition("=")
        if not (equals and name.startswith("spark.")):
            raise Failure(f"--conf is spark.KEY=VALUE, and not {text!r}", ExitCode.USAGE)
        if name == "spark.master":
            raise Failure("--conf spark.master=URL is --master URL here", ExitCode.USAGE)
        found[name] = f"{found[name]},{value}" if name == _PACKAGES and name in found else value
    return found


def say_that_spark_starts(as_json: bool) -> None:
    """Raises NoJava where it cannot start."""
    from tailrace.spark.pipelines.session import java

    java.find()
    if not as_json:
        print("Starting Spark, which takes some seconds, the first time longer …", file=sys.stderr, flush=True)


def say_that_spark_ends(as_json: bool) -> None:
    from tailrace.spark.pipelines.session.session import stores_classes

    if stores_classes() and not as_json:
        print("Storing Spark's classes once, so that it starts faster from now on …", file=sys.stderr, flush=True)


class _Runner(threading.Thread):
    """One of several pipelines that share a session."""

    def __init__(
        self, job: "Pipeline", bootstrap: str, state: Path | None, view: "View", settings: Mapping[str, Any]
    ) -> None:
        super().__init__(name=job.name, daemon=True)
        self.job = job
        self.stop = threading.Event()
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self._arguments = (bootstrap, state / job.name if state else None, settings)
        self._view = view

    def run(self) -> None:
        bootstrap, state, settings = self._arguments
        self._view.begin(self.job.name, self.job.source, self.job.sink.guarantee)
        try:
            self.outcome = self.job.run(
                bootstrap,
                state=state,
                stop=self.stop,
                on_progress=lambda progress: self._view.show(self.job.name, progress),
                **settings,
            )
        except Exception as error:  # noqa: BLE001 - raised again by who waits for it
            self.error = error
        else:
            self._view.end(self.job.name, self.outcome)


def _run_all(runners: list[_Runner]) -> None:
    """Until all have ended. Ctrl-C stops all, and so does one that has failed."""
    asked = on_signals()
    for runner in runners:
        runner.start()
    while any(runner.is_alive() for runner in runners):
        time.sleep(_LOOK_SECONDS)
        if asked.is_set() or any(runner.error for runner in runners):
            for runner in runners:
                runner.stop.set()
    for runner in runners:
        if runner.error is not None:
            raise runner.error
