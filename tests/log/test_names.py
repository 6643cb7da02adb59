"""Names on disk are Kafka's, and only those are taken for a partition's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.names import DERIVED, LOG, SNAPSHOT, TopicPartition, numbered, parse_numbered, parse_partition

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
