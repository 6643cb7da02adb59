"""The small text files of a data directory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.files.checkpoints import CorruptCheckpoint, decode_lines, decode_offsets, encode_lines, encode_offsets
from tailrace.log.layout.names import TopicPartition

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, (1 << 31) - 1)), st.integers(0, (1 << 63) - 1), max_size=6
)


def test_the_file_is_the_one_that_kafka_writes() -> None:
    offsets = {TopicPartition("words", 10): 7, TopicPartition("words", 2): 1234, TopicPartition("a-b", 0): 0}
    assert encode_offsets(offsets) == b"0\n3\na-b 0 0\nwords 2 1234\nwords 10 7\n"


@given(OFFSETS)
def test_offsets_come_back_as_they_were_encoded(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(OFFSETS)
def test_a_file_cut_at_any_byte_is_refused(offsets: dict[TopicPartition, int]) -> None:
    data = encode_offsets(offsets)
    for size in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            decode_offsets(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"1\n1\nt 0 5\n",
        b"0\n1\nt 0 5\nt 1 5\n",
        b"0\n2\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt zero 5\n",
        b"0\n1\nt 0 five\n",
        b"0\nmany\nt 0 5\n",
        b"\xff\xfe\n",
        bytes(40),
    ],
    ids=lambda data: repr(data)[2:-1],
)
def test_a_file_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_in_the_one_way(data: bytes) -> None:
    try:
        offsets = decode_offsets(data)
    except CorruptCheckpoint:
        return
    assert len(offsets) <= data.count(b"\n")


def test_entries_have_just_as_many_fields_as_asked_for() -> None:
    data = encode_lines(["a b", "c d"])
    assert decode_lines(data, fields=2) == [["a", "b"], ["c", "d"]]
    with pytest.raises(CorruptCheckpoint, match="does not have 3 fields"):
        decode_lines(data, fields=3)
