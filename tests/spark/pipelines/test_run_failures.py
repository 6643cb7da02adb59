"""What is said of a pipeline that cannot run, in a real Spark: one sentence with the cause, and no further try where
none can help. And what Spark's Java process may be left with.
"""

import itertools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.spark import Call, Files, Json, Parquet, Pipeline, pipeline
from tailrace.spark.pipelines import query_start
from tailrace.spark.pipelines import run as running
from tailrace.spark.pipelines.failures import RunFailed
from tailrace.spark.pipelines.sinks import Sink
from tailrace.spark.pipelines.state.checkpoint_files import DamagedCheckpoint
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]

Produce = Callable[..., None]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FIRST_DELAY_S", 0.01)


@pytest.fixture
def once(spark: Any, broker: Broker, tmp_path: Path) -> Run:
    def run(job: Pipeline, **settings: Any) -> Any:
        return job.run(broker.bootstrap, **{"once": True, "spark": spark, "state": tmp_path / "state"} | settings)

    return run


def job_of(topic: str, sink: Sink, function: Any = lambda frame: frame.select("id")) -> Pipeline:
    return pipeline(source=topic, decode=Json("id INT"), sink=sink, name=f"etl-{topic}")(function)


def test_a_sink_whose_format_spark_does_not_have_is_said_to_be_missing(
    once: Run, topic: str, produce: Produce, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    produce('{"id": 1}')
    with pytest.raises(RunFailed, match=rf"^etl-{topic}: Spark has no format 'delta'\. .*spark\.jars\.packages$"):
        once(job_of(topic, Files("delta", str(tmp_path / "out"))))
    assert caplog.text == ""


def test_a_function_without_return_and_a_list_as_sink_are_refused(once: Run, topic: str, tmp_path: Path) -> None:
    sink = Parquet(str(tmp_path / "out"))

    def forgetful(frame: Any) -> None:
        frame.select("id")

    job = job_of(topic, sink, forgetful)
    said = (
        rf"function of pipeline {job.name} \(.*test_run_failures\.py:\d+\) returns None, and not a frame: is a `return`"
    )
    with pytest.raises(BadOptions, match=said):
        once(job)
    with pytest.raises(BadOptions, match=said):
        job.test([{"id": 1}])
    with pytest.raises(BadOptions, match="a pipeline has one sink, and not 2"):
        job_of(topic, [sink, sink])  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"sink is Topic\(…\), .* and not 'out'"):
        once(job_of(topic, sink), sink="out")


@pytest.mark.parametrize(("name", "is_file_sink"), [("offsets/1", True), ("commits/1", True), ("metadata", False)])
def test_a_damaged_checkpoint_is_named_and_not_tried_again(
    once: Run,
    topic: str,
    produce: Produce,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    is_file_sink: bool,
) -> None:
    sink: Sink = Parquet(str(tmp_path / "out")) if is_file_sink else Call(lambda frame, _: frame.collect())
    produce('{"id": 1}')
    once(job_of(topic, sink))
    path = tmp_path / "state" / "checkpoint" / name
    path.write_bytes(path.read_bytes()[:-8])
    path.with_name(f".{path.name}.crc").unlink()
    with pytest.raises(DamagedCheckpoint, match=f"^{path} is damaged: "):
        once(job_of(topic, sink))
    assert "started again" not in caplog.text


def test_an_import_that_fails_is_not_tried_again(
    once: Run, topic: str, produce: Produce, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def careless(frame: Any) -> Any:
        from pyspark.sql.functions import udf

        return frame.select(udf(lambda number: __import__("nothing_there").X, "int")("id").alias("id"))

    produce('{"id": 1}')
    with pytest.raises(RunFailed, match=rf"^etl-{topic}: No module named 'nothing_there'\. Install it"):
        once(job_of(topic, Parquet(str(tmp_path / "out")), careless))
    assert "started again" not in caplog.text


def test_messages_are_counted_once_although_the_plan_reads_them_twice(
    once: Run, topic: str, produce: Produce, tmp_path: Path
) -> None:
    def sort(frame: Any, _: int) -> None:
        frame.orderBy("id").write.mode("append").parquet(str(tmp_path / "sorted"))

    produce(*(f'{{"id": {number}}}' for number in range(40)))
    produce(*(f'{{"id": {number}}}' for number in range(10)), partition=1)
    assert once(job_of(topic, Call(sort))).rows == 50
    twice = job_of(topic, Parquet(str(tmp_path / "out")), lambda frame: frame.select("id").union(frame.select("id")))
    assert once(twice, state=tmp_path / "twice").rows == 50


def test_a_source_process_that_was_killed_is_said_with_a_cause_and_started_again(
    once: Run, topic: str, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    killed: list[int] = []

    def kill(frame: Any, _: int) -> None:
        if frame.collect() and not killed:
            killed.extend(_source_processes())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    produce('{"id": 1}')
    assert once(job_of(topic, Call(kill))).restarts == 1
    assert killed
    (said,) = (record.message for record in caplog.records if "started again" in record.message)
    assert re.search(r" s: .*[a-z]{3}$", said), said


def _source_processes() -> Iterator[int]:
    """Those that plan streams for the Java process of this test."""
    from pyspark import SparkContext

    assert SparkContext._gateway is not None
    java = SparkContext._gateway.proc.pid
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, parent = (path / "cmdline").read_bytes(), (path / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == java and b"python_streaming_source_runner" in command:
            yield int(path.name)


# What Java may be left with


def test_queries_of_one_process_start_one_after_another(
    once: Run, topic: str, produce: Produce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one starts when tasks of the first are running, and not while Spark plans it."""
    events: list[tuple[str, str]] = []
    under_way = query_start._is_under_way

    def note(query: Any, context: Any) -> bool:
        is_over = under_way(query, context)
        events.append(("under way" if is_over else "is planned", query.name))
        return is_over

    def announce(name: str) -> Any:
        def function(frame: Any) -> Any:
            events.append(("starts", name))
            return frame.select("id")

        return function

    monkeypatch.setattr(query_start, "_is_under_way", note)
    produce(*(f'{{"id": {number}}}' for number in range(10)))
    jobs = [
        pipeline(source=topic, decode=Json("id INT"), sink=Parquet(str(tmp_path / name)), name=name)(announce(name))
        for name in ("a", "b", "c")
    ]
    stop = threading.Event()
    threads = [
        threading.Thread(target=once, args=(job,), kwargs={"state": tmp_path / f"state-{job.name}", "stop": stop})
        for job in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for event, name in events if event == "starts") == ["a", "b", "c"]
    turns = [name for name, _ in itertools.groupby(name for _, name in events)]
    assert len(turns) == 3, "nobody starts in the turn of another"
    assert [events[-1][0], *(event for event, name in events if event == "under way")] == ["under way"] * 4


def test_a_session_that_fails_twice_in_the_same_way_is_replaced(
    spark: Any, broker: Broker, once: Run, topic: str, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    """The session was given: the next one is in the same Java process."""
    wrong = spark.newSession()

    def strange(frame: Any) -> Any:
        is_wrong = frame.sparkSession._jsparkSession.equals(wrong._jsparkSession)
        return frame.selectExpr("id", "raise_error('Illegal size 5') AS nothing" if is_wrong else "1 AS nothing")

    produce('{"id": 1}')
    outcome = once(job_of(topic, Call(lambda frame, _: frame.collect()), strange), spark=wrong)
    assert (outcome.restarts, outcome.rows) == (2, 1)
    assert "failed twice in the same way: it gets a new Spark session" in caplog.text
