"""`.run` in a real Spark, against a real broker: once, again, with failures in between."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tailrace.spark import Call, Console, Json, Parquet, Pipeline, Text, Topic, offsets_behind, pipeline
from tailrace.spark.pipelines import run as running
from tailrace.spark.pipelines.failures import RunFailed
from tailrace.spark.pipelines.run import cadence
from tailrace.spark.pipelines.session.session import any_session
from tailrace.spark.pipelines.sinks import Sink
from tailrace.spark.pipelines.state.state import AlreadyRunning, State
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]

Produce = Callable[..., None]


def orders(topic: str, sink: Sink, **more: Any) -> Pipeline:
    @pipeline(source=topic, decode=Json("id INT", **more), sink=sink, name=f"etl-{topic}")
    def run(frame: Any) -> Any:
        return frame.where("id >= 0").select("id", "offset")

    return run


def ids(spark: Any, path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(path)).collect())


@pytest.fixture
def once(spark: Any, broker: Broker, tmp_path: Path) -> Callable[..., Any]:
    def run(job: Pipeline, **settings: Any) -> Any:
        given = {"once": True, "spark": spark, "state": tmp_path / "state"} | settings
        return job.run(broker.bootstrap, **given)

    return run


def test_a_run_reads_what_is_there_and_the_next_goes_on(
    spark: Any, once: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    job = orders(topic, Parquet(str(tmp_path / "out")))
    produce('{"id": 1}', "no JSON", '{"id": 2}', None)
    seen: list[Any] = []
    first = once(job, on_progress=seen.append)
    assert (first.rows, first.restarts) == (4, 0)
    produce('{"id": 3}', partition=1)
    assert once(job).rows == 1
    assert ids(spark, tmp_path / "out") == [1, 2, 3]
    with_rows = [one for one in seen if one["rows"]]
    assert [(one["rows"], one["corrupt"], one["tombstones"], one["lag"]) for one in with_rows] == [(4, 1, 1, 0)]
    state = State(tmp_path / "state")
    assert [one["rows"] for one in state.progress() if one["rows"]] == [4, 1]
    assert [batch.id for batch in state.batches()] == list(range(len(state.batches())))
    assert state.batches()[-1].end[topic] == {"0": 4, "1": 1}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": job.group, "log_level": 0})
    places = consumer.committed([TopicPartition(topic, number) for number in (0, 1)], timeout=10)
    consumer.close()
    assert [place.offset for place in places] == [4, 1], "its group is where it is"


def test_a_pattern_reads_topics_that_come_later_and_a_replay_reads_them_all(
    spark: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    job = replace(orders(topic, Parquet(str(tmp_path / "out"))), source=(f"{topic}-.*",))
    stop, seen = threading.Event(), []

    def note(progress: Any) -> None:
        seen.append(progress)
        found = sum(one["rows"] for one in seen)
        if found == 1 and not later.is_set():
            later.set()
            broker.create_topic(f"{topic}-us")
            produce('{"id": 2}', to=f"{topic}-us")
        if found == 2:
            stop.set()

    later = threading.Event()
    broker.create_topic(f"{topic}-eu")
    produce('{"id": 1}', to=f"{topic}-eu")
    produce('{"id": 9}')
    job.run(broker.bootstrap, spark=spark, state=tmp_path / "state", stop=stop, on_progress=note)
    assert ids(spark, tmp_path / "out") == [1, 2]
    for mode in ("batch", "exact"):
        again = Parquet(str(tmp_path / mode))
        job.replay(broker.bootstrap, sink=again, mode=mode, spark=spark, state=tmp_path / "state")
        assert ids(spark, tmp_path / mode) == [1, 2]
    with pytest.raises(BadOptions, match=f"reads topic {topic}-eu"):
        job.replay(broker.bootstrap, sink=Topic(f"{topic}-eu"), spark=spark, state=tmp_path / "state")


def test_progress_says_how_far_partitions_are_behind(
    spark: Any, once: Any, broker: Broker, options: dict[str, str], topic: str, produce: Produce, tmp_path: Path
) -> None:
    """As numbers of a pipeline's batch, and of a plain query's `lastProgress`."""
    produce(*(f'{{"id": {number}}}' for number in range(6)))
    seen: list[Any] = []
    job = orders(topic, Console())
    once(replace(job, options={"maxOffsetsPerTrigger": "4"}), on_progress=seen.append)
    found = [one["behind"] for one in seen if one["rows"]]
    expected = [(0, 2, 1), (0, 0, 0)]
    names = [f"{which}OffsetsBehindLatest" for which in ("min", "max", "avg")]
    assert [tuple(one[name] for name in names) for one in found] == expected
    plain = options | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "prefetch": "false"}
    writer = spark.readStream.format("tailrace").options(**plain).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "plain")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    with_rows = [offsets_behind(one) for one in query.recentProgress if one.numInputRows]
    assert [tuple(one[name] for name in names) for one in with_rows if one] == expected


def test_what_a_call_has_not_survived_is_tried_again(
    once: Any, topic: str, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FIRST_DELAY_S", 0.05)
    calls: list[tuple[int, list[int]]] = []

    def fragile(frame: Any, number: int) -> None:
        rows = sorted(row.id for row in frame.collect())
        if rows:
            calls.append((number, rows))
        if len(calls) == 1:
            raise OSError("the disk is full")

    produce('{"id": 1}', '{"id": 2}')
    outcome = once(orders(topic, Call(fragile)))
    assert outcome.restarts == 1
    assert calls[0] == calls[1], "the same batch, with the same number"
    assert len(calls) == 2


def test_a_pipeline_that_fails_again_and_again_is_given_up(
    once: Any, topic: str, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FIRST_DELAY_S", 0.01)

    def broken(frame: Any, number: int) -> None:
        raise OSError("the disk is full")

    produce('{"id": 1}')
    with pytest.raises(RunFailed, match=f"etl-{topic}: OSError: the disk is full$"):
        once(orders(topic, Call(broken)), max_restarts=1)


def test_records_that_are_gone_end_it_without_another_try(
    once: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = orders(topic, Parquet(str(tmp_path / "out")))
    produce(*('{"id": 1}' for _ in range(3)))
    once(job)
    produce(*('{"id": 2}' for _ in range(5)))
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in client.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(10)
    with pytest.raises(RunFailed, match=f"{topic}-0: offsets 3 to 5 are missing"):
        once(job, max_restarts=1000)
    assert "started again" not in caplog.text
    assert once(job, on_data_loss="report").rows == 2
    (lost,) = map(json.loads, (tmp_path / "state" / "losses.jsonl").read_text().splitlines())
    assert (lost["from"], lost["to"]) == (3, 6)


def test_options_that_are_wrong_are_not_tried_again(once: Any, topic: str) -> None:
    with pytest.raises(Exception, match="there is no option 'maxoffsets'"):
        once(orders(topic, Console()), options={"maxOffsets": "1"}, max_restarts=1000)


def test_corrupt_messages_go_to_their_own_sink_from_the_same_start_on(
    spark: Any, once: Any, topic: str, produce: Produce, tmp_path: Path
) -> None:
    job = orders(topic, Parquet(str(tmp_path / "out")), corrupt=Parquet(str(tmp_path / "bad")))
    produce('{"id": 1}', "{", "", None, '{"id": 2}')
    once(job)
    produce('{"id": 3} 4', '{"id": 5}')
    once(job)
    assert ids(spark, tmp_path / "out") == [1, 2, 5]
    bad = spark.read.parquet(str(tmp_path / "bad")).orderBy("offset").collect()
    assert [(bytes(row.value), row.offset, row.topic) for row in bad] == [
        (b"{", 1, topic),
        (b"", 2, topic),
        (b'{"id": 3} 4', 5, topic),
    ]


def test_a_sink_for_corrupt_messages_that_comes_later_begins_where_the_pipeline_is(
    spark: Any,
    once: Any,
    broker: Broker,
    topic: str,
    produce: Produce,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce("{", '{"id": 1}')
    once(orders(topic, Parquet(str(tmp_path / "out"))))
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in client.create_partitions([NewPartitions(topic, 3)]).values():
        future.result(10)
    produce("}", '{"id": 2}')
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})  # which knows the new partition
    producer.produce(topic, "]", partition=2)
    assert producer.flush(20) == 0
    later = orders(topic, Parquet(str(tmp_path / "out")), corrupt=Parquet(str(tmp_path / "bad")))
    once(later)
    assert "has run without a sink for corrupt messages" in caplog.text
    bad = spark.read.parquet(str(tmp_path / "bad")).collect()
    assert sorted(bytes(row.value) for row in bad) == [b"]", b"}"], "and all of the partition that is new"


def test_a_pipeline_that_reads_its_topic_twice_runs_and_has_no_exact_replay(
    spark: Any, once: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    corrupt = Json("id INT", corrupt=Parquet(str(tmp_path / "bad")))

    @pipeline(source=topic, decode=corrupt, sink=Parquet(str(tmp_path / "out")), name=f"twice-{topic}")
    def twice(frame: Any) -> Any:
        return frame.select("id").union(frame.selectExpr("id + 10"))

    produce('{"id": 1}', "{")
    once(twice)
    assert ids(spark, tmp_path / "out") == [1, 11]
    assert [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "bad")).collect()] == [b"{"]
    with pytest.raises(BadOptions, match="reads its topics 2 times"):
        twice.plan_replay(broker.bootstrap, mode="exact", state=tmp_path / "state")


def test_another_pipeline_does_not_take_over_a_directory(
    once: Any, topic: str, produce: Produce, tmp_path: Path
) -> None:
    job = orders(topic, Parquet(str(tmp_path / "out")))
    produce('{"id": 1}')
    once(job)
    owner = State(tmp_path / "state").owner()
    assert owner == {"name": job.name, "source": [topic], "sink": [["files", str(tmp_path / "out")]]}
    with pytest.raises(BadOptions, match=f"belongs to pipeline {job.name}"):
        once(replace(job, name="other"))


def test_the_session_that_there_is_is_taken_by_every_thread(spark: Any) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(any_session("other")))
    thread.start()
    thread.join()
    assert found == [spark]
    with pytest.raises(BadOptions, match=r"there is a session on local\[2,4\] already"):
        any_session("other", "spark://host:7077")


PROGRAM = """
    import sys
    from tailrace.spark import Call, Text, pipeline

    def show(frame, number):
        print([row.value for row in frame.collect()], flush=True)

    job = pipeline(source=sys.argv[2], decode=Text(), sink=Call(show), name="look")(lambda frame: frame)
    print("ended", job.run(sys.argv[1], state=sys.argv[3]).rows)
"""


def test_a_run_that_makes_its_session_ends_with_ctrl_c(
    broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce("coffee")
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), broker.bootstrap, topic, str(tmp_path / "state")]
    quick = {"TAILRACE_SPARK_ARCHIVE": "off", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    process = subprocess.Popen(
        program, env=os.environ | quick, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        while "coffee" not in (line := process.stdout.readline()):
            assert line, "it has ended"
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert "ended" in out, "with a batch that may be given up"
    assert "Traceback" not in said
    assert process.returncode == 0


def test_a_live_run_is_stopped_and_its_batches_are_kept_beyond_those_of_spark(
    spark: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "5")
    stop, seen = threading.Event(), []

    def note(progress: Any) -> None:
        seen.append(progress)
        if sum(one["rows"] for one in seen) == 20:
            stop.set()

    produce(*(f'{{"id": {number}}}' for number in range(20)))
    job = orders(topic, Call(lambda frame, number: frame.collect()))
    state = State(tmp_path / "state")
    with_few = {"maxOffsetsPerTrigger": "1"}
    try:
        job.run(broker.bootstrap, state=state, spark=spark, stop=stop, on_progress=note, options=with_few)
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    kept = state.batches()
    assert [batch.id for batch in kept] == list(range(len(kept)))
    assert [batch.end[topic]["0"] for batch in kept][:21] == list(range(21)), "batch 0 is empty"
    assert not (state.checkpoint / "offsets" / "2").exists(), "Spark has forgotten it"
    assert [one["batch"] for one in state.progress()] == [one["batch"] for one in seen]


def test_one_pipeline_does_not_run_twice_at_once(once: Any, topic: str, tmp_path: Path) -> None:
    job = orders(topic, Console())
    with State(tmp_path / "state").locked(), pytest.raises(AlreadyRunning):
        once(job)


def test_a_console_prints_what_comes(
    once: Any, topic: str, produce: Produce, capsys: pytest.CaptureFixture[str]
) -> None:
    @pipeline(source=topic, decode=Text(), sink=Console(), name=f"look-{topic}")
    def look(frame: Any) -> Any:
        return frame.select("value")

    produce("coffee")
    once(look)
    assert "coffee" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("every", "said"), [(None, "0 seconds"), ("10s", "10 seconds"), ("5m", "5 minutes"), ("1 minute", "1 minute")]
)
def test_a_cadence_is_said_as_spark_says_it(every: str | None, said: str) -> None:
    assert cadence(every) == said


def test_what_is_no_cadence_is_refused() -> None:
    with pytest.raises(BadOptions, match="10 seconds"):
        cadence("soon")


def test_lag_is_what_is_left_behind_a_batch_although_spark_does_not_ask_for_it(
    once: Any, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(*(f'{{"id": {number}}}' for number in range(10)))
    seen: list[Any] = []
    once(orders(topic, Parquet(str(tmp_path / "out"))), on_progress=seen.append, options={"maxOffsetsPerTrigger": "4"})
    ends = json.loads((tmp_path / "state" / "latest.json").read_text())
    assert ends[topic]["0"] == 10
    by_rows = {sum(one["rows"] for one in seen[: number + 1]): one["lag"] for number, one in enumerate(seen)}
    assert by_rows == {0: 10, 4: 6, 8: 2, 10: 0}
