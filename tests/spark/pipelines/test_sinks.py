"""Sinks: what is written, and where."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.spark import Call, Files, Json, Parquet, Topic, pipeline
from tailrace.spark.pipelines.sinks import as_messages
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]


def test_rows_become_messages_of_a_topic(spark: Any) -> None:
    message = "'v' AS value, 'k' AS key, 'orders' AS topic, 1 AS partition, 2L AS offset, now() AS timestamp"
    cases = {
        "'k' AS key, 'v' AS value": {"key": "k", "value": "v"},
        f"{message}, false AS _tombstone": {"key": "k", "value": "v"},
        f"{message}, false AS _tombstone, CAST(null AS BINARY) AS _corrupt": {"key": "k", "value": b"v"},
        "CAST(null AS STRING) AS value, X'FF' AS _corrupt": {"value": b"\xff"},
        f"{message}, false AS _tombstone, 5 AS id": {"key": "k", "value": '{"value":"v","id":5}'},
        f"{message}, true AS _tombstone, CAST(null AS INT) AS id": {"key": "k", "value": None},
        "'orders' AS topic, 5 AS count": {"value": '{"topic":"orders","count":5}'},
        "named_struct('start', 1) AS window, 5 AS count, 'k' AS key": {
            "key": "k",
            "value": '{"window":{"start":1},"count":5}',
        },
    }
    for columns, expected in cases.items():
        (row,) = as_messages(spark.sql(f"SELECT {columns}")).collect()
        assert row.asDict() == expected, columns
    with pytest.raises(BadOptions, match="nothing but columns"):
        as_messages(spark.sql("SELECT 'k' AS key"))


def test_a_topic_takes_what_a_pipeline_makes(
    spark: Any, broker: Broker, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    pytest.importorskip("tailrace.spark.sink.writer")
    for name in (f"{topic}-big", f"{topic}-bad"):
        broker.create_topic(name)
    decode = Json("id INT, amount DOUBLE", corrupt=Topic(f"{topic}-bad", delivery="at-least-once"))

    @pipeline(source=topic, decode=decode, sink=Topic(f"{topic}-big", delivery="at-least-once"), name=topic)
    def big(orders: Any) -> Any:
        return orders.where("amount > 100 OR _tombstone")

    produce('{"id": 1, "amount": 150}', '{"id": 2, "amount": 5}', "{", None, key="k")
    big.run(broker.bootstrap, once=True, spark=spark, state=tmp_path / "state")

    def read(name: str) -> list[Any]:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": name, "includeHeaders": "true"}
        return list(spark.read.format("tailrace").options(**options).load().orderBy("offset").collect())

    written = [(bytes(row.key), row.value and bytes(row.value)) for row in read(f"{topic}-big")]
    assert written == [(b"k", b'{"id":1,"amount":150.0}'), (b"k", None)]
    (bad,) = read(f"{topic}-bad")
    assert bytes(bad.value) == b"{"
    said = {header.key: bytes(header.value).decode() for header in bad.headers}
    assert said == {"topic": topic, "partition": "0", "offset": "2", "error": "it is not one JSON object"}


def test_files_of_any_format_are_written_in_batches_and_in_partitions(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS id, 'x' AS day UNION ALL SELECT 2, 'y'")
    Files("csv", str(tmp_path / "csv"), options={"header": "true"}).write_batch(frame, {})
    assert {row.id for row in spark.read.csv(str(tmp_path / "csv"), header=True).collect()} == {"1", "2"}
    sink = Parquet(str(tmp_path / "out"), partition_by=("day",))
    sink.write_batch(frame, {})
    assert sorted(path.name for path in tmp_path.glob("out/day=*")) == ["day=x", "day=y"]
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        sink.write_batch(frame, {}, mode="error")


def test_a_function_is_called_with_a_batch_that_no_stream_has_counted(spark: Any) -> None:
    calls: list[tuple[int, int]] = []
    Call(lambda frame, number: calls.append((frame.count(), number))).write_batch(spark.range(3), {})
    assert calls == [(3, -1)]


def test_a_topic_is_only_appended_to(spark: Any) -> None:
    with pytest.raises(BadOptions, match="can be appended to"):
        Topic("a").write_batch(spark.range(1), {}, mode="overwrite")
