"""Offsets as checkpoints have them, shares of a trigger, and pieces of a range."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.spark.source.positions import Positions, limited, offsets_in, partitions_in, split

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = bytes(range(16))

places = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 20))
offsets = st.dictionaries(places, st.integers(0, 2**62), max_size=8)


def test_the_json_is_that_of_the_connector_with_an_id_for_each_topic() -> None:
    found = Positions({A1: 7, A0: 5, B0: 1}, {"a": ID, "gone": ID}).to_json()
    assert json.dumps(found) == '{"a": {"0": 5, "1": 7}, "b": {"0": 1}, "a#id=AAECAwQFBgcICQoLDA0ODw": {}}'


@given(offsets)
def test_it_is_read_as_it_was_written_and_always_the_same_text(found: dict[TopicPartition, int]) -> None:
    ids = {place.topic: ID for place in found}
    text = json.dumps(Positions(found, ids).to_json())
    assert Positions.from_json(json.loads(text)) == Positions(found, ids)
    backwards = dict(reversed(found.items()))
    assert json.dumps(Positions(backwards, dict(reversed(ids.items()))).to_json()) == text


def test_a_checkpoint_of_the_connector_has_no_ids() -> None:
    assert Positions.from_json({"a": {"0": 5}}) == Positions({A0: 5}, {})


@given(offsets, st.integers(1, 10_000), st.data())
def test_a_limit_is_shared_and_nobody_gets_nothing(
    end: dict[TopicPartition, int], limit: int, data: st.DataObject
) -> None:
    start = {place: data.draw(st.integers(0, offset)) for place, offset in end.items()}
    reached = limited(start, end, limit)
    assert reached.keys() == end.keys()
    for place, offset in end.items():
        assert start[place] <= reached[place] <= offset
        assert (reached[place] == start[place]) == (offset == start[place])
    moved = sum(reached[place] - start[place] for place in end)
    assert moved <= limit + len(end)
    if sum(end.values()) - sum(start.values()) <= limit:
        assert reached == end


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 50))
def test_a_range_is_split_without_gaps(start: int, length: int, parts: int) -> None:
    pieces = list(split(start, start + length, parts))
    assert pieces[0][0] == start
    assert pieces[-1][1] == start + length
    assert all(first < last for first, last in pieces)
    assert all(one[1] == other[0] for one, other in pairwise(pieces))
    assert len(pieces) == max(1, min(parts, length))


@pytest.mark.parametrize("text", ["", "soon", "[]", '{"a": 5}', '{"a": {"x": 1}}', "{"])
def test_offsets_that_are_none_are_said_to_be(text: str) -> None:
    with pytest.raises(ValueError, match="startingOffsets is a word, or JSON"):
        offsets_in(text, "startingOffsets")
    with pytest.raises(ValueError, match="assign is JSON"):
        partitions_in(text + "x", "assign")
