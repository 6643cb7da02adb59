"""What a range has and what is missing from it, of topics of a real broker, without Spark."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.spark.pipelines.replay.replay_range import (
    Completeness,
    ReplayRange,
    When,
    replay_range_of,
    start_from,
    stop_from,
)
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

Options = dict[str, str]
Produce = Callable[..., None]


def extent(options: Options, start: When = "earliest", end: When = "now") -> ReplayRange:
    return replay_range_of(options, start_from(start), stop_from(end))


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.delete_records([Place(topic, 0, offset)]).values():
        future.result(10)


def counts(found: ReplayRange) -> list[tuple[int, int, int]]:
    return [(part.start, part.end, part.count) for part in found.parts]


def test_all_that_is_there_is_complete(options: Options, produce: Produce) -> None:
    produce("a", "b", "c")
    found = extent(options)
    assert counts(found) == [(0, 3, 3), (0, 0, 0)]
    assert found.completeness is Completeness.COMPLETE
    assert found.count == 3
    assert found.bytes > 0


def test_the_options_read_just_that(options: Options, topic: str, produce: Produce) -> None:
    produce("a", "b")
    given = extent(options).source_options()
    assert given["startingOffsets"] == f'{{"{topic}": {{"0": 0, "1": 0}}}}'
    assert given["endingOffsets"] == f'{{"{topic}": {{"0": 2, "1": 0}}}}'


def test_a_range_of_a_time_is_read_to_the_end_and_counted_to_the_time(options: Options, produce: Produce) -> None:
    for moment in (1000, 2000, 3000, 4000):
        produce("x", timestamp=moment)
    found = extent(options, at(2000), at(4000))
    assert counts(found) == [(1, 4, 2), (0, 0, 0)]
    assert found.source_options()["endingTimestamp"] == "4000"


def test_deleted_offsets_are_named(options: Options, broker: Broker, topic: str, produce: Produce) -> None:
    produce("a", "b", "c")
    delete_before(broker, topic, 2)
    found = extent(options)
    assert found.completeness is Completeness.INCOMPLETE
    assert [str(gap) for gap in found.gaps] == [f"{topic}-0: offsets 0 to 1 were deleted"]
    assert counts(found)[0] == (2, 3, 1)


def test_what_was_deleted_may_have_been_of_the_time(
    options: Options, broker: Broker, topic: str, produce: Produce
) -> None:
    for moment in (1000, 2000, 3000):
        produce("x", timestamp=moment)
    delete_before(broker, topic, 1)
    found = extent(options, at(3000))
    assert found.completeness is Completeness.MAYBE, "times need not be in order"
    assert "may have been of the range" in str(found.gaps[0])


def test_a_compacted_topic_may_have_lost_records(broker: Broker) -> None:
    broker.create_topic("latest-prices", configs={"cleanup.policy": "compact"})
    found = extent({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "latest-prices"})
    assert found.completeness is Completeness.MAYBE
    assert "compacted" in str(found.gaps[0])


def test_offsets_can_be_given(options: Options, topic: str, produce: Produce) -> None:
    produce("a", "b", "c")
    found = extent(options, {topic: {0: 1, 1: 0}}, {topic: {0: 2, 1: 0}})
    assert [(part.place, part.start, part.end) for part in found.parts] == [
        (TopicPartition(topic, 0), 1, 2),
        (TopicPartition(topic, 1), 0, 0),
    ]


def test_ends_that_cannot_be_are_refused(options: Options, topic: str, produce: Produce) -> None:
    produce("a")
    with pytest.raises(BadOptions, match="ends before it begins"):
        extent(options, at(2000), at(1000))
    with pytest.raises(BadOptions, match="is not a time"):
        extent(options, "some day")
    with pytest.raises(BadOptions, match=f"offset 7 of {topic}-0, which ends at 1"):
        extent(options, end={topic: {0: 7, 1: 0}})
    with pytest.raises(BadOptions, match=f"says nothing of {topic}-1"):
        extent(options, {topic: {0: 0}})
