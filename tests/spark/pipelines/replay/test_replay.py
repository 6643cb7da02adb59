"""A pipeline over history, compared with what it did live, late rows and all."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tailrace.spark import Call, Json, Parquet, Pipeline, Topic, pipeline
from tailrace.spark.pipelines.replay.exact_replay import NotExact
from tailrace.spark.pipelines.state.history import Batch
from tailrace.spark.pipelines.state.state import State
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(320)]

Produce = Callable[..., None]
BASE = 1_700_000_000


def windows(topic: str, sink: Any, **more: Any) -> Pipeline:
    @pipeline(source=topic, decode=Json("at LONG"), sink=sink, name="windows", **more)
    def counted(events: Any) -> Any:
        from pyspark.sql import functions as F

        times = events.select(F.timestamp_seconds("at").alias("time"))
        return times.withWatermark("time", "5 seconds").groupBy(F.window("time", "10 seconds")).count()

    return counted


def without_windows(topic: str) -> Pipeline:
    """The code was changed: batches without data are not needed any more."""

    @pipeline(source=topic, decode=Json("at LONG"), sink=Topic("elsewhere"), name="windows")
    def plain(events: Any) -> Any:
        return events.select("at")

    return plain


def send(produce: Produce, *seconds: int, partition: int = 0) -> None:
    produce(*(json.dumps({"at": BASE + second}) for second in seconds), partition=partition)


def rows(spark: Any, path: Path) -> Counter[tuple[int, int]]:
    found = spark.read.parquet(str(path)).collect()
    return Counter((int(row.window.start.timestamp()) - BASE, row["count"]) for row in found)


def live_with_late_rows(live: Pipeline, produce: Produce, bootstrap: str, state: Path, spark: Any) -> list[list[int]]:
    """Two partitions, one fast and one slow, in some batches; some rows come when their window is closed. What was sent
    to each partition.
    """
    sent: list[list[int]] = [[], []]
    for step in range(4):
        fast, slow = [*range(step * 12, step * 12 + 12)], [*range(step * 6, step * 6 + 6)]
        for partition, seconds in enumerate((fast + ([1, 2, 11] if step == 3 else []), slow)):
            send(produce, *seconds, partition=partition)
            sent[partition] += seconds
        live.run(bootstrap, once=True, state=state, spark=spark)
    return sent


def late_rows(sent: list[list[int]], batches: list[Batch], topic: str) -> Counter[int]:
    """How many came behind the watermark of their batch, by window."""
    late: Counter[int] = Counter()
    for before, batch in pairwise(batches):
        for partition, seconds in enumerate(sent):
            for second in seconds[before.end[topic][str(partition)] : batch.end[topic][str(partition)]]:
                start = second // 10 * 10
                late[start] += (BASE + start + 10) * 1000 <= batch.watermark_ms
    return +late


def test_exact_is_live_again_and_a_batch_counts_what_was_late(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    live = windows(topic, Parquet(str(tmp_path / "live")))
    state = tmp_path / "state"
    sent = live_with_late_rows(live, produce, bootstrap, state, spark)
    first = rows(spark, tmp_path / "live")

    exact = live.replay(bootstrap, sink=Parquet(str(tmp_path / "exact")), mode="exact", state=state, spark=spark)
    assert rows(spark, tmp_path / "exact") == first
    assert (exact.rows_read, exact.rows_corrupt, exact.rows_written) == (4 * 18 + 3, 0, first.total())
    live.replay(
        bootstrap, sink=Parquet(str(tmp_path / "exact")), mode="exact", state=state, spark=spark, overwrite=True
    )
    assert rows(spark, tmp_path / "exact") == first, "what was there is gone, and not taken for written"
    assert len(exact.plan.batches) > 8, "batches without data are played, too"

    batch = live.replay(bootstrap, sink=Parquet(str(tmp_path / "batch")), state=state, spark=spark)
    counted, closed = dict(rows(spark, tmp_path / "batch").keys()), dict(first.keys())
    differ = Counter({start: counted[start] - count for start, count in closed.items()})
    late = late_rows(sent, State.of("windows", state).batches(), topic)
    assert +differ == late
    assert late, "nothing was late: this test shows nothing"
    assert 0 < (batch.plan.late_in_live or 0) <= late.total(), "Spark counts groups of them"
    assert batch.rows_read == 4 * 18 + 3
    assert not list((state / "replays").glob("*")), "what a replay needs on the way is gone"


def test_an_exact_replay_counts_rows_and_not_the_markers_of_transactions(
    spark: Any, topic: str, bootstrap: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    for number in range(2):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"at": BASE + number}), partition=0)
        producer.commit_transaction(30)

    @pipeline(source=topic, decode=Json("at LONG"), sink=Parquet(str(tmp_path / "live")), name="plain")
    def plain(events: Any) -> Any:
        return events.select("at")

    state = tmp_path / "state"
    plain.run(bootstrap, once=True, state=state, spark=spark)
    exact = plain.replay(bootstrap, sink=Parquet(str(tmp_path / "exact")), mode="exact", state=state, spark=spark)
    assert (exact.plan.extent.count, exact.rows_read, exact.rows_written) == (4, 2, 2)


def test_code_that_needs_other_batches_cannot_be_exact(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    send(produce, *range(20))
    windows(topic, Parquet(str(tmp_path / "live"))).run(bootstrap, once=True, state=tmp_path / "state", spark=spark)
    elsewhere = Parquet(str(tmp_path / "other"))
    with pytest.raises(NotExact, match="it has 2 batches, and live had 3"):
        without_windows(topic).replay(bootstrap, sink=elsewhere, mode="exact", state=tmp_path / "state", spark=spark)


def test_where_nothing_was_late_closed_windows_are_the_same(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    live = windows(topic, Parquet(str(tmp_path / "live")))
    for step in range(2):
        send(produce, *range(step * 20, step * 20 + 20))
        live.run(bootstrap, once=True, state=tmp_path / "state", spark=spark)
    done = live.replay(bootstrap, sink=Parquet(str(tmp_path / "again")), state=tmp_path / "state", spark=spark)
    first, again = rows(spark, tmp_path / "live"), rows(spark, tmp_path / "again")
    assert first
    assert first - again == Counter()
    assert {start for start, _ in again - first} <= {20, 30}, "only windows that live has not closed yet"
    assert done.plan.late_in_live == 0


def test_a_time_range_has_all_its_rows_and_reports_the_windows_that_it_cuts(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    for second in (0, 14, 40, 12, 25, 13):
        produce(json.dumps({"at": BASE + second}), timestamp=(BASE + second) * 1000)
    live = windows(topic, Parquet(str(tmp_path / "live")))
    begin, end = (datetime.fromtimestamp(BASE + second, UTC) for second in (12, 30))
    done = live.replay(
        bootstrap, sink=Parquet(str(tmp_path / "some")), start=begin, end=end, state=tmp_path / "none", spark=spark
    )
    assert dict(rows(spark, tmp_path / "some")) == {(10, 3): 1, (20, 1): 1}
    assert (done.rows_read, done.rows_written, done.cut_windows) == (4, 2, 1)
    assert done.plan.late_in_live is None


def test_a_place_that_is_full_is_overwritten_only_if_that_is_wanted(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    send(produce, 1)
    live = windows(topic, Parquet(str(tmp_path / "live")))
    again = Parquet(str(tmp_path / "again"))
    live.replay(bootstrap, sink=again, spark=spark, state=tmp_path / "none")
    with pytest.raises(BadOptions, match="has something in it"):
        live.replay(bootstrap, sink=again, spark=spark, state=tmp_path / "none")
    live.replay(bootstrap, sink=again, spark=spark, state=tmp_path / "none", overwrite=True)


def test_what_cannot_be_repeated_is_refused_or_said(
    spark: Any, topic: str, bootstrap: str, produce: Produce, tmp_path: Path
) -> None:
    produce("a")

    @pipeline(source=topic, sink=Parquet(str(tmp_path / "live")))
    def dated(messages: Any) -> Any:
        return messages.selectExpr("value", "current_timestamp() AS seen")

    @pipeline(source=topic, sink=Parquet(str(tmp_path / "live")))
    def once_each(messages: Any) -> Any:
        return messages.withWatermark("timestamp", "1 second").dropDuplicatesWithinWatermark(["value"])

    state, elsewhere = tmp_path / "state", Parquet(str(tmp_path / "again"))
    dated.run(bootstrap, once=True, state=state, spark=spark)
    with pytest.raises(BadOptions, match="current_timestamp"):
        dated.replay(bootstrap, sink=elsewhere, mode="exact", state=state, spark=spark)
    done = dated.replay(bootstrap, sink=elsewhere, state=state, spark=spark)
    assert "current_timestamp" in done.warnings[0]
    with pytest.raises(BadOptions, match=r"dropDuplicatesWithinWatermark.*mode='exact'"):
        once_each.replay(bootstrap, sink=elsewhere, state=state, spark=spark, overwrite=True)


def test_a_topic_is_a_place_and_corrupt_messages_are_counted(
    spark: Any, topic: str, broker: Broker, produce: Produce, tmp_path: Path
) -> None:
    broker.create_topic(again := f"{topic}-again")
    produce('{"at": 1}', "no JSON", '{"at": 2}')

    @pipeline(source=topic, decode=Json("at LONG", corrupt="drop"), sink=Parquet(str(tmp_path / "live")))
    def plain(events: Any) -> Any:
        return events.select("at")

    done = plain.replay(broker.bootstrap, sink=Topic(again, delivery="at-least-once"), spark=spark)
    assert (done.rows_read, done.rows_corrupt, done.rows_written) == (3, 1, 2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": again}
    written = spark.read.format("tailrace").options(**options).load().collect()
    assert sorted(bytes(row.value) for row in written) == [b'{"at":1}', b'{"at":2}']


def test_a_function_is_called_with_the_rows(spark: Any, topic: str, bootstrap: str, produce: Produce) -> None:
    send(produce, 1, 2)
    found: list[int] = []
    done = windows(topic, Topic("elsewhere")).replay(
        bootstrap, sink=Call(lambda frame, _: found.append(frame.count())), spark=spark
    )
    assert found == [1]
    assert done.rows_read is None, "it may look at the rows any number of times, or never"
