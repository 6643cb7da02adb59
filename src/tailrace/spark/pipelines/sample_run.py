"""`.test`: runs a pipeline over rows that a test has made, as a batch, with no broker.

The columns that come with every message may be left out: the topic is the first source that is a name, the partition
0, offsets count from 0, and a message is a second later than the one before.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.decoders import COMES_WITH, TOMBSTONE
from tailrace.spark.pipelines.session.session import any_session
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark.pipelines.pipeline import Pipeline

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TYPES = {"_corrupt": "BINARY", "_tombstone": "BOOLEAN"}

Row = dict[str, Any]


def run_on(
    pipeline: "Pipeline",
    rows: Iterable[Mapping[str, Any]] | None,
    messages: Iterable[Any] | None,
    spark: "SparkSession | None",
) -> list[Row]:
    """Either `rows`, dicts of decoded columns; or `messages`, each a value (bytes, text or None) or a dict with `value`
    and perhaps the columns beside it, which go through the decoder.
    """
    if (rows is None) == (messages is None):
        raise BadOptions("rows, which are decoded, or messages=…, which are not yet: one of them")
    session = any_session("test", given=spark)
    beside = [f"{name} {kind}" for name, kind in COMES_WITH.items() if name != "headers" or pipeline.has_headers]
    if rows is not None:
        flags = [f"{name} {_TYPES[name]}" for name in pipeline.decode.flags]
        filled = [{TOMBSTONE: False} | row for row in _filled(pipeline, rows)]
        frame = pipeline.transformed(_frame(session, [pipeline.decode.ddl, *beside, *flags], filled))
    else:
        given = (one if isinstance(one, Mapping) else {"value": one} for one in messages or ())
        frame = pipeline.frame_of(_frame(session, ["value BINARY", *beside], _filled(pipeline, given)))
    return [row.asDict(recursive=True) for row in frame.collect()]


def _filled(pipeline: "Pipeline", rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    topic = next(iter(pipeline.topics), "test")
    return [
        {"topic": topic, "partition": 0, "offset": number, "timestamp": BEGIN + timedelta(seconds=number), **row}
        for number, row in enumerate(rows)
    ]


def _frame(session: "SparkSession", columns: list[str], rows: list[Row]) -> "DataFrame":
    """Through Arrow, which takes an int for a double and a text for bytes."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(", ".join(columns))
    assert isinstance(schema, StructType), "of several columns"
    for row in rows:
        if unknown := [name for name in row if name not in schema.names]:
            raise BadOptions(f"there is no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    types = to_arrow_schema(schema, timezone="UTC")
    try:
        table = pa.Table.from_pylist(rows, types)
    except (pa.ArrowException, OverflowError):
        raise BadOptions(_unfit_value(types, rows)) from None
    frame: DataFrame = session.createDataFrame(table, schema)
    return frame.coalesce(1)


def _unfit_value(types: "pa.Schema", rows: list[Row]) -> str:
    """Names the first value that its column cannot have."""
    import pyarrow as pa

    for row, field in product(rows, types):
        try:
            pa.array([row.get(field.name)], field.type)
        except (pa.ArrowException, OverflowError):
            value = row[field.name]
            return (
                f"column {field.name!r}, {field.type}, cannot be {value!r} ({type(value).__name__}). "
                "Rows have Python's values, such as a datetime; messages=[…] takes messages, and decodes them"
            )
    return "the rows do not fit their columns"
