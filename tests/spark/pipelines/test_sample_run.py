"""`.test`: a pipeline over some rows."""

from typing import Any

import pytest

from tailrace.spark import Console, Json, pipeline
from tailrace.spark.source.options import BadOptions

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(150),
    pytest.mark.spark,
]


@pipeline(source="orders", decode=Json("id INT, amount DOUBLE"), sink=Console())
def big(orders: Any) -> Any:
    return orders.where("amount > 100")


def test_rows_are_decoded_columns_and_the_others_are_there(spark: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "amount": 150},
        {"id": 2, "amount": 5},
        {"id": 3, "amount": 101, "key": "k", "partition": 7},
    ]
    first, second = big.test(rows, spark=spark)
    assert (first["id"], first["topic"], first["partition"], first["offset"]) == (1, "orders", 0, 0)
    assert (second["id"], second["key"], second["partition"], second["offset"]) == (3, b"k", 7, 2)


def test_messages_go_through_the_decoder(spark: Any) -> None:
    found = big.test(messages=['{"id": 1, "amount": 150}', b"{", None, {"value": '{"amount": 500}', "key": "k"}])
    assert [(row["id"], row["key"]) for row in found] == [(1, None), (None, b"k")]


def test_a_window_is_counted(spark: Any) -> None:
    @pipeline(source="orders", decode=Json("id INT"), sink=Console(), output_mode="append")
    def counts(orders: Any) -> Any:
        from pyspark.sql.functions import window

        return orders.withWatermark("timestamp", "1 minute").groupBy(window("timestamp", "10 seconds")).count()

    assert sorted(row["count"] for row in counts.test([{"id": n} for n in range(15)], spark=spark)) == [5, 10]


def test_a_column_that_there_is_not_is_said(spark: Any) -> None:
    with pytest.raises(BadOptions, match="there is no column 'amuont'; there are id, amount, key"):
        big.test([{"amuont": 1}], spark=spark)
    with pytest.raises(BadOptions, match="one of them"):
        big.test(spark=spark)


def test_a_value_of_another_type_is_named_with_its_column(spark: Any) -> None:
    with pytest.raises(BadOptions, match=r"column 'id', int32, cannot be 'one' \(str\).*messages="):
        big.test([{"id": 1, "amount": 1}, {"id": "one"}], spark=spark)
    with pytest.raises(BadOptions, match=r"column 'timestamp', timestamp.*'2026-01-01' \(str\).* a datetime"):
        big.test([{"id": 1, "timestamp": "2026-01-01"}], spark=spark)
