"""Sinks: what is written, and where."""

from typing import Any

import pytest

from tailrace.spark.options import BadOptions
from tailrace.spark.pipelines.sinks import as_messages

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
