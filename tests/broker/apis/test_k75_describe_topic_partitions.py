"""DescribeTopicPartitions: pages that together are everything, once."""

from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.apis.k03_metadata import TOPIC_OPERATIONS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest


def ask(broker: LocalBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor is not None else None,
    )
    return broker.ask(request, 0)


def said(response: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (topic.name, topic.error_code, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def next_of(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def with_topics(broker: LocalBroker) -> None:
    for name, count in (("c", 3), ("a", 2), ("b", 1)):
        broker.create_topic(name, count)


def test_a_topic_is_said_with_its_partitions(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic("orders", 2)
        (topic,) = ask(broker, "orders").topics
        assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "orders", topic_id, False)
        assert topic.topic_authorized_operations == TOPIC_OPERATIONS == 3576, "as Kafka says it"
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
            assert partition.replica_nodes == partition.isr_nodes == [1]
            assert partition.eligible_leader_replicas == partition.last_known_elr == partition.offline_replicas == []


def test_topics_come_in_the_order_of_their_names_and_each_once(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        assert said(ask(broker, "c", "a", "c")) == [("a", 0, [0, 1]), ("c", 0, [0, 1, 2])]


def test_no_topics_is_all_of_them(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        response = ask(broker)
        assert [name for name, _, _ in said(response)] == ["__tailrace_metadata", "a", "b", "c"]
        assert response.topics[0].is_internal
        assert next_of(response) is None


def test_topics_that_are_not_there_are_errors(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        assert said(ask(broker, "nobody", "a", "b b")) == [
            ("a", 0, [0, 1]),
            ("b b", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
            ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ]


def test_a_page_ends_inside_of_a_topic_and_the_next_goes_on_there(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        first = ask(broker, "a", "c", limit=3)
        assert (said(first), next_of(first)) == ([("a", 0, [0, 1]), ("c", 0, [0])], ("c", 1))
        second = ask(broker, "a", "c", limit=3, cursor=("c", 1))
        assert (said(second), next_of(second)) == ([("c", 0, [1, 2])], None)


def test_a_page_that_ends_with_a_topic_goes_on_with_the_next(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        first = ask(broker, "a", "b", "c", limit=2)
        assert (said(first), next_of(first)) == ([("a", 0, [0, 1])], ("b", 0))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_one_partition_at_least(tmp_path: Path, limit: int) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        assert said(ask(broker, "a", limit=limit)) == [("a", 0, [0])]


def test_a_page_has_2000_partitions_at_most(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("large", 2001)
        response = ask(broker, "large", limit=1_000_000)
        assert len(response.topics[0].partitions) == 2000
        assert next_of(response) == ("large", 2000)


def test_a_cursor_off_the_list_or_below_0_is_refused(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        invalid = ErrorCode.INVALID_REQUEST
        assert said(ask(broker, "a", "c", cursor=("b", 0))) == [("a", invalid, []), ("c", invalid, [])]
        assert said(ask(broker, "a", cursor=("a", -1))) == [("a", invalid, [])]


def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with_topics(broker)
        assert [name for name, _, _ in said(ask(broker, cursor=("aa", 5)))] == ["b", "c"]
        assert said(ask(broker, "aa", "b", cursor=("aa", 5))) == [
            ("aa", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            ("b", 0, [0]),
        ]
        assert said(ask(broker, "a", "b", cursor=("a", 9))) == [("a", 0, []), ("b", 0, [0])]


@given(limit=st.integers(1, 12), counts=st.lists(st.integers(1, 7), min_size=1, max_size=5), by_name=st.booleans())
def test_all_pages_together_have_every_partition_once(
    tmp_path_factory: pytest.TempPathFactory, limit: int, counts: list[int], by_name: bool
) -> None:
    with LocalBroker(tmp_path_factory.mktemp("pages")) as broker:
        names = [f"topic-{n}" for n in range(len(counts))]
        for name, count in zip(names, counts, strict=True):
            broker.create_topic(name, count)
        found: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            response = ask(broker, *(names if by_name else ()), limit=limit, cursor=cursor)
            page = [(name, index) for name, _, indexes in said(response) for index in indexes]
            assert 1 <= len(page) <= limit
            found += page
            if (cursor := next_of(response)) is None:
                break
        wanted = [(name, index) for name, count in zip(names, counts, strict=True) for index in range(count)]
        assert [one for one in found if one[0] != "__tailrace_metadata"] == wanted
