"""The decorator and what it makes; progress."""

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from tailrace.client.errors import ConnectionLost
from tailrace.spark import Console, Json, Parquet, Pipeline, Raw, Topic, pipeline
from tailrace.spark.pipelines.failures import Kind, RunFailed, kind_of
from tailrace.spark.pipelines.progress import behind, lag, offsets_behind, summary
from tailrace.spark.pipelines.replay.replay import replay
from tailrace.spark.pipelines.run import run
from tailrace.spark.source.options import BadOptions, source_options


@pipeline(source="orders", decode=Json("id INT, amount DOUBLE"), sink=Topic("big"))
def big(orders: Any) -> Any:
    return orders.where("amount > 100")


def test_a_pipeline_is_named_as_its_function_and_so_is_its_group() -> None:
    assert isinstance(big, Pipeline)
    assert (big.name, big.group, big.source, big.start) == ("big", "big", ("orders",), "earliest")
    assert big(type("Frame", (), {"where": lambda self, text: text})()) == "amount > 100", "it is still the function"


def test_what_is_given_counts() -> None:
    @pipeline(source=["a", "b"], sink=Console(), name="etl", group="g", start="2026-11-15T10:00+00:00")
    def f(frame: Any) -> Any:
        return frame

    assert (f.name, f.group, f.source, f.decode) == ("etl", "g", ("a", "b"), Raw())
    assert f.start_options()["startingTimestamp"] == "1794736800000"


def test_a_source_may_be_a_pattern() -> None:
    job = pipeline(source=["orders-.*", "returns.v1"], sink=Topic("big"), name="x")(lambda frame: frame)
    read = job.read_options("host:1")
    assert "subscribe" not in read
    assert source_options(read, is_stream=True).selection.pattern == r"(?:returns\.v1)|(?:orders-.*)"
    assert [job.reads(name) for name in ("orders-eu", "returns.v1", "returns-v1", "orders")] == [
        True,
        True,
        False,
        False,
    ]
    assert big.read_options("host:1")["subscribe"] == "orders"


def test_a_pattern_that_is_none_or_finds_what_the_pipeline_writes_is_refused() -> None:
    with pytest.raises(BadOptions, match=r"'orders-\(' is neither a topic's name nor a regular expression"):
        pipeline(source="orders-(", sink=Console())(lambda frame: frame)
    with pytest.raises(BadOptions, match=r"x would read what it writes: topic orders-big matches orders-\.\*"):
        pipeline(source="orders-.*", sink=Topic("orders-big"), name="x")(lambda frame: frame)
    corrupt = Json("id INT", corrupt=Topic("orders-bad"))
    with pytest.raises(BadOptions, match="topic orders-bad matches"):
        pipeline(source="orders-.*", decode=corrupt, sink=Console(), name="x")(lambda frame: frame)


def test_a_start_that_is_none_is_refused() -> None:
    with pytest.raises(BadOptions, match="start is earliest, latest, group or a time"):
        pipeline(source="a", sink=Console(), start="soon")(lambda frame: frame)


def test_a_start_may_be_said_as_everywhere_and_counts_when_the_run_begins() -> None:
    job = pipeline(source="a", sink=Console(), start="yesterday", name="x")(lambda frame: frame)
    assert job.start == "yesterday"
    before = (datetime.now().astimezone() - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert 0 <= int(job.start_options()["startingTimestamp"]) - before.timestamp() * 1000 <= 86_400_000
    moment = datetime(2026, 11, 15, 10, tzinfo=UTC)
    given = pipeline(source="a", sink=Console(), start=moment, name="x")(lambda frame: frame)
    assert given.start_options()["startingTimestamp"] == "1794736800000"


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("startingOffsets", "start="),
        ("startingtimestamp", "start="),
        ("endingOffsets", "end= of a replay"),
        ("group", "group="),
        ("subscribePattern", "source="),
        ("assign", "source="),
        ("failOnDataLoss", "on_data_loss="),
        ("onDataLoss", "on_data_loss="),
        ("stateDirectory", "state="),
        ("recordedBatches", "mode='exact'"),
    ],
)
def test_an_option_that_an_argument_says_is_refused(option: str, argument: str) -> None:
    said = f"option {option} is said by an argument: {argument}"
    with pytest.raises(BadOptions, match=said):
        pipeline(source="a", sink=Console(), options={option: "x"})(lambda frame: frame)
    with pytest.raises(BadOptions, match=said):
        big.read_options("host:1", {option: "x"})
    big.read_options("host:1", {"groupIdPrefix": "x"})


def test_its_options_are_those_of_the_format() -> None:
    secure = {"kafka.security.protocol": "SASL_PLAINTEXT", "maxOffsetsPerTrigger": "5"}
    sasl = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u", "kafka.sasl.password": "p"}

    @pipeline(source=["a", "b"], sink=Console(), options=secure)
    def f(frame: Any) -> Any:
        return frame

    read = f.read_options("host:1", sasl)
    assert read["subscribe"] == "a,b"
    assert read["maxOffsetsPerTrigger"] == "5"
    assert f.client_options("host:1", sasl) == {
        "kafka.bootstrap.servers": "host:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        **sasl,
    }


def test_what_it_reads_is_known_to_the_format() -> None:
    found = source_options(big.read_options("host:1") | big.start_options() | {"group": big.group}, is_stream=True)
    assert found.columns == ("key", "value", "topic", "partition", "offset", "timestamp")
    assert found.group == "big"


def test_the_names_are_loaded_when_they_are_used() -> None:
    program = """
import sys, tailrace.spark, tailrace.spark.source.options
assert not {"pyspark", "numba", "tailrace.spark.pipelines"} & set(sys.modules), "at import"
from tailrace.spark import Call, Console, Files, Json, Parquet, Pipeline, Raw, Text, Topic, pipeline, session
from tailrace.spark import offsets_behind
assert not {"pyspark", "numba"} & set(sys.modules), "at definition"
assert not [name for name in tailrace.spark.__all__ if not hasattr(tailrace.spark, name)]
assert set(tailrace.spark.__all__) <= set(dir(tailrace.spark))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with pytest.raises(ImportError):
        exec("from tailrace.spark import Kettle")


@pytest.mark.parametrize(("method", "function"), [(Pipeline.run, run), (Pipeline.replay, replay)])
def test_help_names_every_setting(method: Callable[..., Any], function: Callable[..., Any]) -> None:
    settings = [name for name, one in signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    described = re.findall(r"^ {8}(\S.*?)  ", method.__doc__ or "", re.MULTILINE)
    assert sorted(name for names in described for name in names.split(", ")) == sorted(settings)


def test_where_nothing_listens_a_run_ends_at_once_and_begins_nothing(tmp_path: Path) -> None:
    job = pipeline(source="orders", decode=Raw(), sink=Parquet(str(tmp_path / "out")), name="etl")(lambda frame: frame)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{bound.getsockname()[1]}"
        for settings in ({"once": True}, {"options": {"kafka.Retry.Backoff.ms": "50"}}):
            with pytest.raises(RunFailed, match=rf"^etl: {nowhere}: Connection refused") as failed:
                job.run(nowhere, state=tmp_path / "state", spark=object(), **settings)
            assert failed.value.__cause__ is not None
            assert kind_of(failed.value.__cause__) is Kind.NOT_REACHABLE
        with pytest.raises(ConnectionLost, match="Connection refused"):
            job.plan_replay(nowhere, state=tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_each_sink_says_what_it_promises() -> None:
    assert "exactly once where the broker has transactions" in Topic("a").guarantee
    assert "at least once" in Topic("a", delivery="at-least-once").guarantee
    assert "with Spark" in Parquet("out").guarantee
    with pytest.raises(BadOptions, match="delivery is one of"):
        Topic("a", delivery="maybe")


def test_a_sink_says_where_it_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    there = ("files", str((tmp_path / "out").resolve()))
    assert Parquet("out").place == Parquet("a/../out").place == Parquet(f"file://{tmp_path}/out").place == there
    assert Parquet(f"file:{tmp_path}/out").place == there
    assert Parquet("s3://bucket/out").place == ("files", "s3://bucket/out")
    assert (Topic("a").place, Console().place) == (("topic", "a"), None)


# Progress


def test_lag_is_what_is_behind_of_all_partitions() -> None:
    assert lag({"a": {"0": 5, "1": 7}}, {"a": {"0": 9, "1": 7}, "a#id=x": {}}) == 4
    assert lag({"a": {"0": 5}}, None) is None


@pytest.mark.parametrize(
    ("start", "end", "read", "rows"),
    [
        ({"a": {"0": 5}}, {"a": {"0": 9, "1": 7}, "a#id=x": {}}, 8, 4),  # read twice; a partition that begins at 7
        ({"a": {"0": 5}}, {"a": {"0": 9}}, 3, 3),  # one is gone
        ({"a": {"0": 5}}, {"a": {"0": 9}}, 0, 4),  # by a function that looked at no row
        (None, {"a": {"0": 9}}, 0, 0),  # where a query begins
    ],
)
def test_messages_are_counted_by_offsets_and_not_as_often_as_spark_reads_them(
    start: Any, end: Any, read: int, rows: int
) -> None:
    sources = [{"startOffset": start, "endOffset": end, "latestOffset": end}]
    given = {"batchId": 1, "timestamp": "", "numInputRows": read, "durationMs": {"addBatch": 1}, "sources": sources}
    assert summary(given)["rows"] == rows


def test_what_is_behind_by_partition_is_named_as_sparks_connector_names_it() -> None:
    expected = {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 4, "avgOffsetsBehindLatest": 2}
    assert behind({"a": {"0": 5, "1": 7}}, {"a": {"0": 9, "1": 7}, "a#id=x": {}}) == expected
    assert behind({"a": {"0": 5}}, None) is None
    assert offsets_behind(None) is None, "before the first batch"


def test_a_summary_says_what_was_left_out() -> None:
    given = {
        "batchId": 3,
        "timestamp": "2026-11-15T10:00:00.000Z",
        "numInputRows": 10,
        "durationMs": {"addBatch": 80, "triggerExecution": 100},
        "eventTime": {"watermark": "2026-11-15T09:00:00.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}],
        "sources": [{"startOffset": {"a": {"0": 0}}, "endOffset": {"a": {"0": 10}}, "latestOffset": {"a": {"0": 10}}}],
        "observedMetrics": {"tailrace": {"corrupt": 4, "tombstones": 1}},
    }
    found = summary(given)
    assert (found["batch"], found["rows"], found["rows_per_second"], found["late"], found["lag"]) == (3, 10, 100, 3, 0)
    assert (found["corrupt"], found["tombstones"]) == (4, 1)
    assert found["watermark"] == "2026-11-15T09:00:00.000Z"
    assert found["duration_ms"] == {"addBatch": 80, "total": 100}
