"""Spark's own connector, `format("kafka")`, beside ours: it reads and writes our broker, and takes over checkpoints.

Runs in the PySpark that the connector is for: `scripts/test-matrix`.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("connector"), pytest.mark.timeout(150), pytest.mark.spark]

Options = dict[str, str]
Produce = Callable[..., None]


def rows(spark: Any, form: str, options: Options, **more: str) -> Counter[Any]:
    frame = spark.read.format(form).options(**options, **more).load()
    return Counter((row.key, row.value, row.partition, row.offset, row.timestamp) for row in frame.collect())


def run(spark: Any, form: str, options: Options, directory: Path, **more: str) -> None:
    """All that is there, into Parquet files, from where the checkpoint is."""
    stream = spark.readStream.format(form).options(**options, startingOffsets="earliest", **more).load()
    writer = stream.selectExpr("CAST(value AS STRING) v", "partition", "offset").writeStream.format("parquet")
    places = {"path": str(directory / "rows"), "checkpointLocation": str(directory / "checkpoint")}
    assert writer.options(**places).trigger(availableNow=True).start().awaitTermination(100)


def written(spark: Any, directory: Path) -> list[str]:
    return sorted(row.v for row in spark.read.parquet(str(directory / "rows")).collect())


def test_it_writes_a_batch_to_our_broker_and_both_read_it(spark: Any, options: Options, topic: str) -> None:
    bootstrap = options["kafka.bootstrap.servers"]
    frame = spark.range(500).selectExpr(
        "CAST(id AS STRING) key",
        "IF(id % 5 = 0, NULL, CAST(id AS STRING)) value",
        "array(named_struct('key', 'n', 'value', CAST('1' AS BINARY))) headers",
    )
    target = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    frame.write.format("kafka").options(**target).save()
    ours, theirs = (rows(spark, form, options, includeHeaders="true") for form in ("tailrace", "kafka"))
    assert ours.total() == 500
    assert ours == theirs
    schemas = [
        spark.read.format(form).options(**options, includeHeaders="true").load().schema
        for form in ("tailrace", "kafka")
    ]
    assert schemas[0] == schemas[1]


def test_it_streams_from_our_broker_to_our_broker(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    broker.create_topic(copy)
    produce(*map(str, range(100)))
    stream = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    writer = stream.select("key", "value").writeStream.format("kafka").options(**options, topic=copy)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        produce(*map(str, range(100, 150)), partition=1)
        query.processAllAvailable()
    finally:
        query.stop()
    run(spark, "tailrace", options | {"subscribe": copy}, tmp_path / "read")
    assert written(spark, tmp_path / "read") == sorted(map(str, range(150)))


def test_a_checkpoint_is_handed_over_and_back(spark: Any, options: Options, produce: Produce, tmp_path: Path) -> None:
    for step, form in enumerate(["tailrace", "kafka", "tailrace", "kafka"]):
        produce(*(f"{step} {number}" for number in range(5)))
        produce(*(f"{step} {number}, too" for number in range(step)), partition=1)
        run(spark, form, options, tmp_path, maxOffsetsPerTrigger="5")
        expected = [f"{was} {number}" for was in range(step + 1) for number in range(5)]
        expected += [f"{was} {number}, too" for was in range(step + 1) for number in range(was)]
        assert written(spark, tmp_path) == sorted(expected), f"read by {form}: each once, and none left out"


# Where we differ


def test_the_connector_skips_records_of_a_recreated_topic_and_tailrace_does_not(
    spark: Any, broker: Broker, options: Options, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(*"abc")
    for form in ("kafka", "tailrace"):
        run(spark, form, options, tmp_path / form)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(20)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    produce(*"vwxyz")
    run(spark, "kafka", options, tmp_path / "kafka")
    assert written(spark, tmp_path / "kafka") == [*"abc", *"yz"], "v, w and x are lost, in silence"
    with pytest.raises(Exception, match=f"{topic}-0: all from offset 3 on is missing .the topic was deleted, and made"):
        run(spark, "tailrace", options, tmp_path / "tailrace")


def test_an_ending_time_hides_rows_from_it_and_not_from_us(spark: Any, options: Options, produce: Produce) -> None:
    for time_ms in (100, 300, 200):
        produce(str(time_ms), timestamp=time_ms)
    ours, theirs = (rows(spark, form, options, endingTimestamp="250") for form in ("tailrace", "kafka"))
    assert sorted(row[1] for row in theirs) == [b"100"]
    assert sorted(row[1] for row in ours) == [b"100", b"200"]
