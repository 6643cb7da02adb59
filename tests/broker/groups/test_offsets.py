"""Committed offsets: as a dictionary by group, topic and partition has them."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.offsets import CommittedOffsets
from tailrace.broker.groups.records import OffsetCommitValue

PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 2))


@given(st.lists(st.tuples(PLACES, st.none() | st.integers(0, 9))))
def test_they_are_as_a_dictionary_has_them(changes: list[tuple[tuple[str, str, int], int | None]]) -> None:
    offsets, model = CommittedOffsets(), dict[tuple[str, str, int], int]()
    for place, offset in changes:
        if offset is None:
            offsets.remove(*place)
            model.pop(place, None)
        else:
            offsets.set(*place, OffsetCommitValue(offset=offset))
            model[place] = offset
    found = {
        (group, topic, partition): value.offset
        for group, topics in offsets.groups()
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }
    assert found == model
    for group in "abc":
        assert offsets.has(group) == any(place[0] == group for place in model)
        assert all(offsets.of_group(group).values()), "nothing is left of a topic without offsets"
        value = offsets.get(group, "x", 0)
        assert (None if value is None else value.offset) == model.get((group, "x", 0))
