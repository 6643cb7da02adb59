"""Names on disk are Kafka's, and only those are taken for a partition's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.layout.names import (
    DERIVED,
    LOG,
    REMOVED,
    SNAPSHOT,
    STRAY,
    TopicPartition,
    is_put_away,
    numbered,
    parse_numbered,
    parse_partition,
    put_away_name,
    without_remains,
)

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)


def test_a_file_is_named_by_twenty_digits_of_its_offset() -> None:
    assert numbered(0, LOG) == "00000000000000000000.log"
    assert numbered((1 << 63) - 1, SNAPSHOT) == "09223372036854775807.snapshot"


@given(st.integers(0, (1 << 63) - 1), st.sampled_from([LOG, SNAPSHOT, *DERIVED]))
def test_a_file_name_gives_back_its_offset_and_suffix(offset: int, suffix: str) -> None:
    assert parse_numbered(numbered(offset, suffix)) == (offset, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "00000000000000000000",
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.4711.cut",
        "00000000000000000000.index.tmp",
        "00000000000000000000.LOG",
        "0000000000000000000x.log",
        "-0000000000000000001.log",
        "\u0660" * 20 + ".log",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "",
    ],
)
def test_other_file_names_are_no_segment_s(name: str) -> None:
    assert parse_numbered(name) is None


@given(TOPICS, st.integers(0, (1 << 31) - 1))
def test_a_directory_name_gives_back_its_topic_and_partition(topic: str, partition: int) -> None:
    where = TopicPartition(topic, partition)
    assert parse_partition(str(where)) == where


def test_a_topic_may_look_like_a_partition() -> None:
    assert parse_partition("words-1-2") == TopicPartition("words-1", 2)


@pytest.mark.parametrize(
    "directory",
    ["words", "words-", "-5", "words-x", "words-1.tmp", "words-0.5f3c-delete", "words-0.5f3c-future", "lost+found", ""],
)
def test_other_directories_are_no_partition_s(directory: str) -> None:
    assert parse_partition(directory) is None


@pytest.mark.parametrize("directory", ["words-00", "words-007", "words-\u0663"])
def test_a_directory_is_a_partition_s_only_under_the_one_name_that_partition_has(directory: str) -> None:
    """Otherwise two directories would claim to be the same partition."""
    assert parse_partition(directory) is None


HEX = "0123456789abcdef" * 2


@given(TOPICS, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 128) + 7), st.sampled_from([REMOVED, STRAY]))
def test_what_is_put_away_is_told_from_a_partition(topic: str, partition: int, number: int, suffix: str) -> None:
    where = TopicPartition(topic, partition)
    name = put_away_name(where, number, suffix)
    assert is_put_away(name)
    assert parse_partition(name) is None
    assert not is_put_away(str(where))
    assert name.startswith(f"{where}.")
    assert len(name) == len(str(where)) + 33 + len(suffix)


@pytest.mark.parametrize("partition", [0, 9, 123_456, (1 << 31) - 1])
def test_a_topic_is_shortened_where_its_name_would_be_too_long_to_be_put_away(partition: int) -> None:
    name = put_away_name(TopicPartition("x" * 249, partition), int(HEX, 16), REMOVED)
    assert len(name) == 255
    assert name.endswith(f"x-{partition}.{HEX}-delete")
    assert is_put_away(name)


@pytest.mark.parametrize(
    ("directory", "topic", "partition"),
    [("x-delete-0", "x-delete", 0), ("a.b-3", "a.b", 3), (f"orders-0.{HEX}-delete-7", f"orders-0.{HEX}-delete", 7)],
)
def test_a_topic_may_look_like_what_is_put_away(directory: str, topic: str, partition: int) -> None:
    assert parse_partition(directory) == TopicPartition(topic, partition)
    assert not is_put_away(directory)


@pytest.mark.parametrize(
    "directory",
    [
        f"orders-0.{HEX}",
        f"orders-0.{HEX[1:]}-delete",
        f"orders-0{HEX}-delete",
        f"orders.{HEX}-delete",
        "orders-delete",
        f"orders-0.{HEX.upper()}-delete",
        f"orders-0.{HEX}-future",
        f"orders-00.{HEX}-stray",
    ],
)
def test_other_directories_were_not_put_away(directory: str) -> None:
    assert not is_put_away(directory)


def test_remains_of_a_removal_are_those_of_the_very_partition() -> None:
    orders, payments = TopicPartition("orders", 0), TopicPartition("payments", 0)
    removed = put_away_name(orders, 7, REMOVED)
    assert without_remains([orders, payments], [removed, "orders-1", "payments-0"]) == {payments}
    assert without_remains([orders], [put_away_name(orders, 7, STRAY)]) == {orders}
    assert without_remains([orders], [put_away_name(TopicPartition("orders-0.x", 1), 7, REMOVED)]) == {orders}
    longest = TopicPartition("x" * 249, 12)
    assert without_remains([longest], [put_away_name(longest, 7, REMOVED)]) == set()
