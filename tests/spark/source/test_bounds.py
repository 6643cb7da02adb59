"""Bounds and filters of batches, against a real broker and without Spark: less is read, and no row is lost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from tailrace.client.cluster.cluster import cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.produce import Producer
from tailrace.records.record import Record, encode_batch
from tailrace.spark.columns.ranges import ALL, NumberRange
from tailrace.spark.data_source import BatchReader, FilteringReader, TailraceSource
from tailrace.spark.source.options import source_options
from tailrace.spark.source.pushdown import RowFilter, row_filter
from tailrace.spark.source.reader import Range
from tailrace.testing import Broker

Options = dict[str, str]
Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARED: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    In: lambda found, value: found in value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    StringStartsWith: lambda found, value: found.startswith(value),
}


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def write(options: Options, topic: str, *batches: list[int], partition: int = 0) -> None:
    """A batch for each list of times."""
    producer = Producer(cluster_for(source_options(options, is_stream=False).client))
    for times in batches:
        records = [Record(offset, time, None, b"%d" % time) for offset, time in enumerate(times)]
        producer.send({TopicPartition(topic, partition): encode_batch(records, base_offset=0)})


def planned(options: Options, filters: list[Filter] | None = None, **more: str) -> tuple[BatchReader, list[Range]]:
    given = source_options(options | more, is_stream=False)
    reader = FilteringReader(given)
    assert list(reader.pushFilters(filters or [])) == (filters or []), "Spark is to check them all"
    return reader, list(reader.partitions())  # type: ignore[arg-type]


def rows(options: Options, filters: list[Filter] | None = None, **more: str) -> list[Row]:
    reader, ranges = planned(options, filters, **more)
    found = [row for one in ranges for batch in reader.read(one) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def times(options: Options, **more: str) -> list[int]:
    return [int(row["value"]) for row in rows(options, None, **more)]


# Times as ends


def test_rows_before_the_ending_time_are_read_wherever_they_are(options: Options, topic: str) -> None:
    write(options, topic, [100, 300, 200], [900], [249, 250], [10])
    assert times(options, endingTimestamp="250") == [100, 200, 249, 10]
    by_partition = f'{{"{topic}": {{"0": 101, "1": 5}}}}'
    assert times(options, endingOffsetsByTimestamp=by_partition) == [100, 10]
    assert times(options, endingTimestamp="901") == times(options)


def test_a_starting_time_is_an_offset(options: Options, topic: str) -> None:
    write(options, topic, [100], [300], [200], partition=0)
    write(options, topic, [300], partition=1)
    assert times(options, startingTimestamp="250") == [300, 200, 300]
    assert times(options, startingTimestamp="250", endingTimestamp="300") == [200]


@pytest.fixture
def stamped(broker: Broker, topic: str) -> str:
    name = f"{topic}-stamped"
    broker.create_topic(name, configs={"message.timestamp.type": "LogAppendTime"})
    return name


def test_where_the_broker_stamps_records_a_time_is_an_offset(
    options: Options, topic: str, stamped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = options | {"subscribe": stamped}
    write(some, stamped, [1], [2])
    between = max(row["timestamp"] for row in rows(some)) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    write(some, stamped, [3], [4])
    before = str((between - EPOCH) // timedelta(milliseconds=1))
    (one,) = planned(some, endingTimestamp=before)[1]
    assert (one.start, one.end) == (0, 4), "clocks of leaders may be apart, though not for long"
    assert times(some, endingTimestamp=before) == [1, 2]
    monkeypatch.setattr("tailrace.spark.source.bounds.MARGIN_MS", 0)
    (one,) = planned(some, endingTimestamp=before)[1]
    assert (one.start, one.end) == (0, 2), "it is not read to its end"
    (one,) = planned(some, [LessThan(("timestamp",), between)])[1]
    assert (one.start, one.end) == (0, 2)
    assert times(some, endingTimestamp=before) == [1, 2]
    assert times(some, endingTimestamp="1") == []


def test_a_topic_that_is_stamped_since_lately_is_read_on(broker: Broker, options: Options, topic: str) -> None:
    write(options, topic, [100], [300], [200])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    change = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(20)
    write(options, topic, [400])
    assert times(options, endingTimestamp="250") == [100, 200]


# Filters


def test_who_asks_for_push_down_where_spark_does_none_is_told(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    for asked in ({}, {"filterPushdown": "true"}):
        source = TailraceSource(options | asked | {"columns": "value"})
        reader = source.reader(StructType([StructField("value", BinaryType())]))
        assert type(reader) is BatchReader
        assert ("has no effect here" in caplog.text) == bool(asked)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], RowFilter()),
        ([EqualTo(("partition",), 1), In(("partition",), (1, 2))], RowFilter(partitions=frozenset({1}))),
        ([In(("topic",), ("a", "b")), EqualNullSafe(("topic",), "a")], RowFilter(topics=frozenset({"a"}))),
        ([GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9)], RowFilter(offsets=NumberRange(6, 9))),
        ([In(("offset",), (7, 3, 5))], RowFilter(offsets=NumberRange(3, 7))),
        ([GreaterThan(("timestamp",), at(5))], RowFilter(times=NumberRange(6, ALL.last))),
        ([GreaterThanOrEqual(("timestamp",), at(5.001))], RowFilter(times=NumberRange(6, ALL.last))),
        ([LessThan(("timestamp",), at(5))], RowFilter(times=NumberRange(ALL.first, 4))),
        ([LessThan(("timestamp",), at(5.001))], RowFilter(times=NumberRange(ALL.first, 5))),
        ([EqualTo(("timestamp",), at(5))], RowFilter(times=NumberRange(5, 5))),
        ([EqualNullSafe(("partition",), None), IsNotNull(("offset",)), Not(EqualTo(("offset",), 1))], RowFilter()),
        ([EqualTo(("headers", "key"), "a"), EqualTo(("value",), b"a"), StringStartsWith(("topic",), "a")], RowFilter()),
        (
            [GreaterThan(("timestamp",), datetime(2026, 1, 1)), In(("offset",), ()), LessThan(("value",), b"")],
            RowFilter(),
        ),
    ],
)
def test_what_filters_want(filters: list[Filter], wanted: RowFilter) -> None:
    assert row_filter(filters) == wanted


def a_filter(topics: list[str]) -> st.SearchStrategy[Filter]:
    values = {
        "topic": st.sampled_from([*topics, "nowhere"]),
        "partition": st.integers(0, 2),
        "offset": st.integers(-1, 12),
        "timestamp": st.builds(at, st.integers(-1, 12) | st.floats(0, 12)),
    }
    compared = st.sampled_from([kind for kind in COMPARED if kind not in (In, StringStartsWith)])
    comparisons = [
        st.builds(lambda kind, one, name=name: kind((name,), one), compared, value) for name, value in values.items()
    ]
    memberships = [
        st.builds(lambda some, name=name: In((name,), tuple(some)), st.lists(value, max_size=3))
        for name, value in values.items()
    ]
    return st.one_of(*comparisons, *memberships)


def passes(row: Row, one: Any) -> bool:
    return bool(COMPARED[type(one)](row[one.attribute[0]], one.value))


def test_filters_that_are_pushed_down_let_the_same_rows_through(options: Options, topic: str, stamped: str) -> None:
    """Timestamps in any order, in batches of any size, on topics of both kinds, between bounds of any kind."""
    all_of_them = options | {"subscribe": f"{topic},{stamped}"}
    write(options, topic, [3, 9, 1], [2], [8, 7], [0, 5], [11, 4, 6, 10])
    write(options, topic, [5, 0], [5], partition=1)
    write(all_of_them, stamped, [1], [2, 3])
    bounds = st.sampled_from([{}, {"endingTimestamp": "6"}, {"startingTimestamp": "4"}])
    unfiltered = {}

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(filters=st.lists(a_filter([topic, stamped]), max_size=3), bound=bounds)
    def compare(filters: list[Filter], bound: Options) -> None:
        key = str(bound)
        if key not in unfiltered:
            unfiltered[key] = rows(all_of_them, None, **bound)
        expected = [row for row in unfiltered[key] if all(passes(row, one) for one in filters)]
        found = [row for row in rows(all_of_them, filters, **bound) if all(passes(row, one) for one in filters)]
        assert found == expected

    compare()


def test_what_no_row_passes_is_not_read(options: Options, topic: str) -> None:
    write(options, topic, [100], [300], [200])
    assert planned(options, [EqualTo(("partition",), 5)])[1] == []
    assert planned(options, [EqualTo(("topic",), "another")])[1] == []
    assert planned(options, [GreaterThan(("timestamp",), at(300))])[1] == []
    assert [(one.start, one.end) for one in planned(options, [GreaterThan(("timestamp",), at(200))])[1]] == [(1, 3)]
    assert [(one.start, one.end) for one in planned(options, [EqualTo(("offset",), 1)])[1]] == [(1, 2)]
