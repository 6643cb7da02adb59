"""Small batches of a stream are read where they are planned: by whom is Spark's to tell, what they hold is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Deleted
from confluent_kafka.admin import AdminClient

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.testing import Broker

pytestmark = [pytest.mark.needs("arrow"), pytest.mark.timeout(150)]

Options = dict[str, str]
Produce = Callable[..., None]


def small(options: Options, *ranges: tuple[TopicPartition, int, int], **more: str) -> list[bytes] | None:
    from tailrace.spark.source.options import source_options
    from tailrace.spark.source.reader import Range
    from tailrace.spark.source.small_batches import read_small

    wanted = [Range(place, start, end) for place, start, end in ranges]
    found = read_small(source_options(options | more, is_stream=True), wanted)
    return None if found is None else [value.as_py() for batch in found for value in batch.column("value")]


def test_a_small_batch_has_the_rows_of_all_its_ranges(options: Options, topic: str, produce: Produce) -> None:
    produce(*"abcd")
    produce("x", "y", partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert small(options, (first, 1, 3), (second, 0, 2)) == [b"b", b"c", b"x", b"y"]


def test_an_empty_batch_and_one_that_is_to_have_many_tasks_are_left_to_spark(
    options: Options, topic: str, produce: Produce
) -> None:
    produce("a")
    assert small(options) is None
    assert small(options, (TopicPartition(topic, 0), 0, 1), minPartitions="1") is None


def test_many_rows_are_no_small_batch(options: Options, topic: str) -> None:
    from tailrace.spark.source.small_batches import ROWS_MAX

    assert small(options, (TopicPartition(topic, 0), 0, ROWS_MAX + 1)) is None, "nobody has looked for them"


def test_many_bytes_are_no_small_batch(options: Options, topic: str, produce: Produce) -> None:
    produce(*["x" * 300_000] * 4)
    place = TopicPartition(topic, 0)
    assert small(options, (place, 0, 4)) is None
    assert len(small(options, (place, 0, 3)) or []) == 3


def test_what_is_gone_is_for_tasks_to_say(broker: Broker, options: Options, topic: str, produce: Produce) -> None:
    produce(*"abc")
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in client.delete_records([Deleted(topic, 0, 2)]).values():
        future.result(10)
    place = TopicPartition(topic, 0)
    assert small(options, (place, 0, 3)) is None
    assert small(options, (place, 2, 3)) == [b"c"]


def test_a_task_that_does_not_find_the_rows_reads_them_itself(options: Options, topic: str, produce: Produce) -> None:
    from pyspark.sql.types import BinaryType, StructType

    from tailrace.spark.data_source import TailraceSource
    from tailrace.spark.source.reader import Range
    from tailrace.spark.source.small_batches import Together

    produce("a", "b")
    produce("c", partition=1)
    source = TailraceSource(options | {"columns": "value"})
    reader = source.streamReader(StructType().add("value", BinaryType()))
    both = Together((Range(TopicPartition(topic, 0), 0, 2), Range(TopicPartition(topic, 1), 0, 1)))
    assert [value.as_py() for batch in reader.read(both) for value in batch.column("value")] == [b"a", b"b", b"c"]


def test_spark_takes_the_reader_for_a_simple_one() -> None:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    from tailrace.spark.data_source import SmallBatchReader

    assert issubclass(SmallBatchReader, _SimpleStreamReaderWrapper), "else all goes the long way"


@pytest.mark.needs("spark")
@pytest.mark.spark
@pytest.mark.parametrize("prefetch", [True, False])
def test_spark_runs_one_task_for_a_small_batch_unless_it_is_told_not_to(
    spark: Any, options: Options, topic: str, produce: Produce, tmp_path: Path, prefetch: bool
) -> None:
    seen: list[tuple[int, list[str]]] = []

    def look(frame: Any, _: int) -> None:
        rows = [row.v for row in frame.selectExpr("CAST(value AS STRING) v").collect()]
        seen.append((frame.rdd.getNumPartitions(), sorted(rows)))

    produce("a")
    produce("b", partition=1)
    given = {"startingOffsets": "earliest", "prefetch": str(prefetch).lower(), "maxOffsetsPerTrigger": "2"}
    stream = spark.readStream.format("tailrace").options(**options, **given).load()
    query = stream.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        produce("c", "d", "e")
        query.processAllAvailable()
    finally:
        query.stop()
    batches = [one for one in seen if one[1]]
    assert batches[0] == (1 if prefetch else 2, ["a", "b"])
    assert sorted(row for _, rows in batches[1:] for row in rows) == ["c", "d", "e"]
    told = [json.loads(one.sources[0].latestOffset) for one in query.recentProgress if one.numInputRows]
    assert all(one is None for one in told) is prefetch, "Spark does not ask a simple reader where its topics end"
