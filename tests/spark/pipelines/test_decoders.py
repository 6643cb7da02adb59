"""Decoders: what is one JSON object and what is not, compared with Python's own reader; and what becomes of others."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.spark import Console, Json, Raw, Text, Topic, pipeline
from tailrace.spark.pipelines.decoders import MARK, Decoder, names_in
from tailrace.spark.source.options import BadOptions

needs_spark = [pytest.mark.needs("arrow"), pytest.mark.needs("spark"), pytest.mark.spark, pytest.mark.timeout(150)]


def with_spark(test: Callable[..., None]) -> Callable[..., None]:
    for mark in needs_spark:
        test = mark(test)
    return test


# The definition


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("id INT", ["id"]),
        ("id INT, amount DECIMAL(10, 2) NOT NULL", ["id", "amount"]),
        ("`odd, name` STRING, `a``b` INT", ["odd, name", "a`b"]),
        ("x STRUCT<y: INT, key: STRING>, z MAP<STRING, ARRAY<INT>>", ["x", "z"]),
        ("id: INT, n INT COMMENT 'with, comma', m INT", ["id", "n", "m"]),
    ],
)
def test_the_names_of_a_ddl_are_those_at_its_top(ddl: str, names: list[str]) -> None:
    assert names_in(ddl) == names


@pytest.mark.parametrize("ddl", ["", "id", "id INT,", "id INT,, x INT"])
def test_what_is_no_ddl_is_said_at_once(ddl: str) -> None:
    with pytest.raises(BadOptions, match="DDL such as"):
        Json(ddl)


@pytest.mark.parametrize("name", ["key", "Timestamp", "offset", "_corrupt", "_tombstone"])
def test_a_field_with_the_name_of_a_column_that_is_there_is_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(BadOptions, match="into="):
        Json(f"id INT, {name} STRING")
    Json(f"id INT, {name} STRING", into="order")


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadOptions, match="corrupt is column, drop, fail or a sink"):
        Text(corrupt="ignore")


# One JSON object, and nothing else

SOME = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
VALUES = st.recursive(SOME, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=4)
FIELDS = st.fixed_dictionaries({}, optional={"s": st.text(), "n": st.integers(-(1 << 64), 1 << 64) | SOME})
OBJECTS = FIELDS | st.dictionaries(st.sampled_from(["s", "n", "x", "}{"]) | st.text(), VALUES, max_size=3)
BLANKS = st.text(" \t\r\n\f\x00\u00a0\ufeff", max_size=3)
GARBAGE = st.text('{}[]",:0179.eE+-ntf\\u/*a \n', max_size=8)


@st.composite
def written(draw: st.DrawFn) -> str:
    """A JSON value, as people write it."""
    value = draw(st.one_of(OBJECTS, OBJECTS, OBJECTS, VALUES))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))


@st.composite
def nearly(draw: st.DrawFn) -> str:
    """One with something before, behind, in the middle, or missing."""
    text = draw(written())
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, min(len(text), begin + 2)))
    return draw(
        st.one_of(
            st.tuples(BLANKS, st.just(text), BLANKS).map("".join),
            st.tuples(st.just(text), GARBAGE | written()).map("".join),
            st.tuples(st.just(text), st.sampled_from([",", "]", "],[", ' , "', "},{"]), written()).map("".join),
            GARBAGE.map(lambda garbage: text[:begin] + garbage + text[end:]),
            st.sampled_from(["NaN", "Infinity", "{'s': 1}", '{"n": 01}', '{"n": NaN}', "{} //", '{"s": "\t"}', "null"]),
            GARBAGE,
        )
    )


ENCODED = st.one_of(written(), nearly(), nearly()).map(str.encode) | st.tuples(
    written().map(str.encode), st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe2\x82"])
).map(b"".join)


class Pairs(list[tuple[str, Any]]):
    """An object, with fields that come twice."""


def refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def is_right(data: bytes) -> bool:
    """Whether `s STRING, n BIGINT` can be read from it."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=Pairs, parse_constant=refused)
    except ValueError:
        return False
    if not isinstance(found, Pairs):
        return False
    numbers = [value for name, value in found if name == "n" and value is not None]
    return all(type(value) is int and -(1 << 63) <= value < 1 << 63 for value in numbers)


@with_spark
def test_json_is_right_where_python_reads_one_object(spark: Any) -> None:
    values: list[bytes] = []

    @settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(ENCODED)
    def gather(value: bytes) -> None:
        values.append(value)  # since Spark takes as long for one as for a thousand

    gather()
    rows = decoded(spark, Json("s STRING, n BIGINT"), *values)
    assert sum(map(is_right, values)) > 50
    for data, row in zip(values, rows, strict=True):
        assert (row["_corrupt"] is None) == is_right(data), data
        if row["_corrupt"] is not None:
            assert (row["_corrupt"], row["s"], row["n"], row["_tombstone"]) == (data, None, None, False)
            continue
        expected = json.loads(data)
        assert row["n"] == expected.get("n"), data
        if isinstance(text := expected.get("s"), str):
            assert row["s"] == text.encode("utf-8", "replace").decode(), data


def decoded(spark: Any, decoder: Decoder, *values: bytes | str | None) -> list[dict[str, Any]]:
    @pipeline(source="orders", decode=decoder, sink=Console())
    def same(frame: Any) -> Any:
        return frame

    return same.test(messages=values, spark=spark)


# The rest


@with_spark
def test_a_decoded_row_has_what_comes_with_a_message(spark: Any) -> None:
    (row,) = decoded(spark, Json("id INT, at STRUCT<x: DOUBLE>"), '{"id": 1, "at": {"x": 2}, "more": 3}')
    names = ["id", "at", "key", "topic", "partition", "offset", "timestamp", "_corrupt", "_tombstone"]
    assert list(row) == names
    assert (row["id"], row["at"], row["topic"], row["partition"], row["offset"]) == (1, {"x": 2.0}, "orders", 0, 0)


@with_spark
def test_a_tombstone_is_flagged_and_not_corrupt(spark: Any) -> None:
    for decoder in (Json("id INT"), Text(), Json("key INT", into="order")):
        (row,) = decoded(spark, decoder, None)
        assert (row["_tombstone"], row["_corrupt"]) == (True, None)
    (row,) = decoded(spark, Raw(), None)
    assert row["_tombstone"]


@with_spark
def test_fields_can_go_into_one_column(spark: Any) -> None:
    decoder = Json("key STRING, id INT", into="order")
    rows = decoded(spark, decoder, '{"key": "k", "id": 1}', "{", None)
    assert [row["order"] for row in rows] == [{"key": "k", "id": 1}, None, None]
    assert [row["_corrupt"] for row in rows] == [None, b"{", None]


@with_spark
def test_text_is_utf_8_and_raw_is_anything(spark: Any) -> None:
    assert [(row["value"], row["_corrupt"]) for row in decoded(spark, Text(), "tea", "", b"\xff")] == [
        ("tea", None),
        ("", None),
        (None, b"\xff"),
    ]
    assert [row["value"] for row in decoded(spark, Raw(), "tea", b"\xff")] == [b"tea", b"\xff"]


@with_spark
def test_corrupt_messages_can_be_left_out_or_stop_everything(spark: Any) -> None:
    rows = decoded(spark, Json("id INT", corrupt="drop"), '{"id": 1}', "{", None)
    assert [(row["id"], row["_tombstone"]) for row in rows] == [(1, False), (None, True)]
    assert "_corrupt" not in rows[0]
    with pytest.raises(Exception, match=MARK) as caught:
        decoded(spark, Json("id INT", corrupt="fail"), '{"id": 1}', "{", None)
    assert "orders partition 0 offset 1 is corrupt: it is not one JSON object" in str(caught.value)


@with_spark
def test_corrupt_messages_say_where_they_are_from_and_why(spark: Any) -> None:
    given = [(b"", 7), (b"\xff", 8), (b'{"id": "x"}', 9), (b"{}{}", 10), (b'{"id": 1}', 11), (None, 12)]
    frame = spark.createDataFrame(
        [(None, value, "orders", 1, offset, None) for value, offset in given],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    found = Json("id INT", corrupt=Console()).corrupt_rows(frame).collect()
    assert [(row.offset, row.error) for row in found] == [
        (7, "it is blank"),
        (8, "it is not UTF-8"),
        (9, "its fields cannot be read"),
        (10, "it is not one JSON object"),
    ]
    first = Json("id INT", corrupt=Topic("dead")).corrupt_rows(frame).collect()[0]
    said = {header.key: bytes(header.value).decode() for header in first.headers}
    assert said == {"topic": "orders", "partition": "1", "offset": "7", "error": "it is blank"}


@with_spark
def test_a_filter_behind_the_decoder_does_not_decode_again(spark: Any) -> None:
    frame = spark.createDataFrame([], "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT")
    filtered = Json("id INT").decode(frame).where("id > 50").select("id")
    plan = filtered._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 2, "the one that decodes, and the one that looks for the end"
