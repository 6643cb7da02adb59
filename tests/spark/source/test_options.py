"""Options: the connector's names and defaults, and what is said where they cannot be."""

import pytest

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import BadOption
from tailrace.client.options import Isolation
from tailrace.spark.sink.options import sink_options
from tailrace.spark.source.options import BadOptions, Bound, OnDataLoss, Selection, source_options

ONE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_the_defaults_are_those_of_the_connector() -> None:
    batch, stream = (source_options(ONE, is_stream=is_stream) for is_stream in (False, True))
    assert (batch.starting, batch.ending) == (Bound("earliest"), Bound("latest"))
    assert stream.starting == Bound("latest")
    assert stream.on_data_loss is OnDataLoss.FAIL
    assert stream.max_offsets_per_trigger is None
    assert "headers" not in stream.columns


def test_names_are_taken_in_any_case_and_topics_with_spaces_between() -> None:
    options = source_options(
        {"KAFKA.Bootstrap.Servers": "a:1,b:2", "SUBSCRIBE": "a, b,a", "MaxOffsetsPerTrigger": "10"}, is_stream=True
    )
    assert options.selection == Selection(topics=("a", "b"))
    assert options.client.bootstrap == (("a", 1), ("b", 2))
    assert options.max_offsets_per_trigger == 10


def test_a_time_counts_before_offsets() -> None:
    given = ONE | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 7}}'}
    assert source_options(given, is_stream=True).starting.timestamps == ((TopicPartition("orders", 0), 7),)
    assert source_options(given | {"startingTimestamp": "5"}, is_stream=True).starting.timestamp == 5


@pytest.mark.parametrize("given", ["true", "false"])
def test_crcs_are_checked_once_where_rows_are_decoded(given: str) -> None:
    options = source_options(ONE | {"kafka.check.crcs": given}, is_stream=True)
    assert (options.check_crcs, options.client.check_crcs) == (given == "true", False)


def test_options_of_the_client_go_to_the_client() -> None:
    options = source_options(ONE | {"kafka.isolation.level": "read_committed"}, is_stream=True)
    assert options.client.isolation is Isolation.READ_COMMITTED
    with pytest.raises(BadOption, match=r"no\.such\.thing"):
        source_options(ONE | {"kafka.no.such.thing": "1"}, is_stream=True)


@pytest.mark.parametrize(
    ("given", "seconds"), [("15m", 900), ("1500", 1.5), ("90 s", 90), ("2min", 120), ("1h", 3600), ("250MS", 0.25)]
)
def test_a_delay_is_written_as_spark_writes_durations(given: str, seconds: float) -> None:
    assert source_options(ONE | {"maxTriggerDelay": given}, is_stream=True).max_trigger_delay_s == seconds


def test_consumer_properties_without_meaning_here_are_taken_for_reading_and_writing() -> None:
    harmless = {"kafka.max.poll.records": "5000", "kafka.session.timeout.ms": "30000", "kafka.client.rack": "a"}
    assert source_options(ONE | harmless, is_stream=True) == source_options(ONE, is_stream=True)
    server = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}
    assert sink_options(server | harmless) == sink_options(server), "a pipeline gives its sink what reaches the broker"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "does not begin at the latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "does not begin at the latest"),
        ({"endingOffsets": "earliest"}, "does not end at the earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "the least is -1"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "has -2 for orders-0: times are from 0 on"),
        ({"endingOffsetsByTimestampStrategy": "latest"}, "no option 'endingoffsetsbytimestampstrategy'"),
    ],
)
def test_a_batch_is_of_what_is_there(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOptions, match=said):
        source_options(ONE | given, is_stream=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers says where"),
        ({"subscribe": None}, "one of the options subscribe"),
        ({"assign": '{"a": [0]}'}, "one of the options subscribe"),
        ({"subscribe": " , "}, "no topic"),
        ({"subscribe": None, "subscribePattern": "("}, "no pattern"),
        ({"startingOffsets": "soon"}, "startingOffsets is a word, or JSON"),
        ({"endingOffsets": "earliest"}, "a stream has no end"),
        ({"startingOffset": "earliest"}, "is startingOffsets meant"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "the least is -2"),
        ({"startingOffsets": "group"}, "the option group names it"),
        ({"startingTimestamp": "-1"}, "startingTimestamp is a whole number"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "has -1 for orders-0: times are from 0 on"),
        ({"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "shrug"}, "is error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger is a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "=9 is more than maxOffsetsPerTrigger=8"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration such as 30s or 15m, and not 'soon'"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay is a duration"),
        ({"kafka.group.id": "etl"}, "kafka.group.id cannot be set: the option group names"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says where"),
        ({"columns": "value,price"}, "no column 'price'"),
        ({"onDataLoss": "shrug"}, "onDataLoss is one of fail, earliest, report"),
        ({"onDataLoss": "report"}, "stateDirectory"),
        ({"minPartitions": "many"}, "whole number"),
        ({"includeHeaders": "perhaps"}, "true or false"),
        ({"endingOffsetsByTimestampStrategy": "latest"}, "a stream has no end"),
    ],
)
def test_what_cannot_be_is_said(changed: dict[str, str | None], said: str) -> None:
    given = {name: value for name, value in (ONE | changed).items() if value is not None}
    with pytest.raises(BadOptions, match=said):
        source_options(given, is_stream=True)
