"""Committed offsets: as a dictionary by group, topic and partition has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.offsets import CommittedOffsets
from tailrace.broker.groups.pending_offsets import GroupTransaction
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
            offsets.set(*place, OffsetCommitValue(offset=offset), 0)
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


@given(st.lists(st.tuples(PLACES, st.none() | st.integers(0, 9))), st.integers(0, 10), st.integers(0, 10))
def test_the_commits_of_a_partition_between_two_offsets_are_those_of_all_groups(
    changes: list[tuple[tuple[str, str, int], int | None]], first: int, before: int
) -> None:
    offsets = CommittedOffsets()
    for place, offset in changes:
        if offset is None:
            offsets.remove(*place)
        else:
            offsets.set(*place, OffsetCommitValue(offset=offset), 0)
    expected = sorted(
        (value.offset, group)
        for group, topics in offsets.groups()
        for partition, value in topics.get("x", {}).items()
        if partition == 0 and first <= value.offset < before
    )
    assert list(offsets.committed_between("x", 0, first, before)) == expected


def test_observers_see_each_change_with_the_commit_before_it() -> None:
    offsets, seen = CommittedOffsets(), []
    offsets.observers.append(
        lambda group, topic, partition, before, now: seen.append((before and before.offset, now and now.offset))
    )
    offsets.set("a", "x", 0, OffsetCommitValue(offset=5), 0)
    offsets.set("a", "x", 0, OffsetCommitValue(offset=7), 0)
    offsets.remove("a", "x", 0)
    offsets.remove("a", "x", 0)
    assert seen == [(None, 5), (5, 7), (7, None)]


@pytest.mark.parametrize(
    ("committed", "pending", "is_found"),
    [
        ("old", [], True),
        ("old", ["old", "old"], True),
        (None, ["old"], True),
        ("new", [], False),
        ("old", ["new"], False),
        ("new", ["old"], False),
        (None, ["old", "new"], False),
    ],
)
def test_a_place_is_found_if_all_its_offsets_are_wanted(
    committed: str | None, pending: list[str], is_found: bool
) -> None:
    """A deleted topic may be there again, with offsets of its own, before those of the old one are removed."""
    offsets = CommittedOffsets()
    if committed is not None:
        offsets.set("a", "x", 0, OffsetCommitValue(metadata=committed), 0)
    for producer_id, metadata in enumerate(pending):
        value = OffsetCommitValue(metadata=metadata)
        offsets.set_pending(GroupTransaction(0, producer_id), "a", "x", 0, value, 1 + producer_id)
    found = list(offsets.places_where("a", lambda topic, value: (topic, value.metadata) == ("x", "old")))
    assert found == [("x", 0)] * is_found
