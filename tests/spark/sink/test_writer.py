"""What can be written, and in which portions."""

import pytest

from tailrace.spark.source.options import BadOptions

pytestmark = [pytest.mark.needs("arrow"), pytest.mark.needs("spark")]
pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")
writing = pytest.importorskip("tailrace.spark.sink.writer")

HEADERS = types.ArrayType(
    types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
)


def schema(**columns: object) -> object:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


def test_these_columns_can_be_written() -> None:
    text, binary = types.StringType(), types.BinaryType()
    writing.check_schema(schema(value=text), "t")
    writing.check_schema(schema(value=binary, key=binary, topic=text), None)
    writing.check_schema(schema(headers=HEADERS, partition=types.IntegerType(), key=text, value=text), "t")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": types.StringType(), "price": types.LongType()}, "column 'price' cannot be written; there are key"),
        ({"key": types.StringType()}, "there is no column value"),
        ({"value": types.LongType()}, "column value is bigint, and is to be string or binary: cast it"),
        ({"value": types.StringType(), "partition": types.LongType()}, "column partition is bigint, and is to be int"),
        ({"value": types.StringType(), "topic": types.BinaryType()}, "column topic is binary"),
        ({"value": types.StringType(), "headers": types.ArrayType(types.StringType())}, "column headers is array<str"),
        ({"value": types.StringType(), "headers": types.MapType(types.StringType(), types.BinaryType())}, "is map<"),
    ],
)
def test_others_are_refused_before_anything_is_written(columns: dict[str, object], said: str) -> None:
    with pytest.raises(BadOptions, match=said):
        writing.check_schema(schema(**columns), "t")


def test_a_topic_is_needed_and_a_column_comes_once() -> None:
    with pytest.raises(BadOptions, match="no topic to write to"):
        writing.check_schema(schema(value=types.StringType()), None)
    twice = types.StructType([types.StructField("value", types.StringType())] * 2)
    with pytest.raises(BadOptions, match="comes twice"):
        writing.check_schema(twice, "t")


def test_small_batches_are_gathered_large_ones_cut_and_empty_ones_left_out() -> None:
    batches = [pa.record_batch({"value": pa.array(["x" * 100] * count)}) for count in (0, 3, 0, 2, 20, 1, 0)]
    found = list(writing.chunks(batches, 600))
    assert [batch.num_rows for batch in found] == [5, 5, 5, 5, 5, 1]
    assert all(batch.nbytes <= 600 for batch in found)
    assert list(writing.chunks(batches[:1], 600)) == []
    assert [batch.num_rows for batch in writing.chunks(batches[3:4], 1)] == [1, 1], "a row is not cut"
