"""`.run` in a real Spark, against a real broker: once, again, with failures in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.spark import Json, Parquet, Pipeline, pipeline
from tailrace.spark.pipelines.sinks import Sink
from tailrace.spark.pipelines.state import State
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
