"""Assignors: no partition is assigned twice, none is left out, members have as much as the others, and keep theirs."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.consumer.assignors import ASSIGNORS, Subscriber, Targets, assign_ranges, assign_uniformly

TOPICS = [bytes([number]) * 16 for number in range(1, 6)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=5)
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), max_size=5), min_size=1, max_size=8)


def subscribers(topics: Sequence[frozenset[bytes]], before: Targets | None = None) -> list[Subscriber]:
    return [
        Subscriber(name, None, wanted, frozenset((before or {}).get(name, ())))
        for name, wanted in ((f"member-{number}", wanted) for number, wanted in enumerate(topics))
    ]


def moved(before: Targets, after: Targets) -> int:
    """How many partitions have another owner, of those whose former owner is still there."""
    return sum(len(partitions - after[member]) for member, partitions in before.items() if member in after)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=counts, topics=subscriptions, former=subscriptions)
def test_every_partition_has_one_subscriber(
    name: str, counts: dict[bytes, int], topics: list[frozenset[bytes]], former: list[frozenset[bytes]]
) -> None:
    before = ASSIGNORS[name](subscribers(former), dict.fromkeys(TOPICS, 7))
    targets = ASSIGNORS[name](subscribers(topics, before), counts)
    owners = Counter(partition for target in targets.values() for partition in target)
    subscribed = {topic for wanted in topics for topic in wanted}
    assert owners == Counter(
        (topic, index) for topic in counts if topic in subscribed for index in range(counts[topic])
    )
    for member, wanted in zip(subscribers(topics), topics, strict=True):
        assert {topic for topic, _ in targets[member.member_id]} <= wanted


@given(counts=counts, size=st.integers(1, 9), former=st.integers(1, 9))
def test_members_with_equal_subscriptions_get_equally_many(counts: dict[bytes, int], size: int, former: int) -> None:
    everything = frozenset(TOPICS)
    before = assign_uniformly(subscribers([everything] * former), dict.fromkeys(TOPICS, 3))
    targets = assign_uniformly(subscribers([everything] * size, before), counts)
    loads = [len(target) for target in targets.values()]
    assert max(loads) - min(loads) <= 1


@given(counts=counts, topics=subscriptions, former=subscriptions)
def test_no_single_move_balances_members_with_different_subscriptions_better(
    counts: dict[bytes, int], topics: list[frozenset[bytes]], former: list[frozenset[bytes]]
) -> None:
    before = assign_uniformly(subscribers(former), dict.fromkeys(TOPICS, 7))
    members = subscribers(topics, before)
    targets = assign_uniformly(members, counts)
    for giver in members:
        for topic, _ in targets[giver.member_id]:
            for taker in members:
                if topic in taker.topics:
                    assert len(targets[giver.member_id]) - len(targets[taker.member_id]) <= 1


@given(counts=counts, topics=subscriptions)
def test_nothing_moves_where_nothing_changes(counts: dict[bytes, int], topics: list[frozenset[bytes]]) -> None:
    before = assign_uniformly(subscribers(topics), counts)
    assert assign_uniformly(subscribers(topics, before), counts) == before


@given(counts=counts, size=st.integers(2, 9), left=st.integers(0, 8))
def test_when_a_member_leaves_the_others_keep_what_they_have(counts: dict[bytes, int], size: int, left: int) -> None:
    members = subscribers([frozenset(TOPICS)] * size)
    before = assign_uniformly(members, counts)
    del before[members[left % size].member_id]
    stay = [
        member._replace(previous=frozenset(before[member.member_id]))
        for member in members
        if member.member_id in before
    ]
    assert moved(before, assign_uniformly(stay, counts)) == 0


@given(counts=counts, size=st.integers(1, 8))
def test_a_new_member_takes_no_more_than_its_share(counts: dict[bytes, int], size: int) -> None:
    before = assign_uniformly(subscribers([frozenset(TOPICS)] * size), counts)
    after = assign_uniformly(subscribers([frozenset(TOPICS)] * (size + 1), before), counts)
    assert moved(before, after) == len(after[f"member-{size}"])


def test_ranges_are_contiguous_and_the_first_members_get_one_more() -> None:
    topic, other = TOPICS[:2]
    members = subscribers([frozenset(TOPICS)] * 3)
    targets = assign_ranges(members, {topic: 7, other: 7})
    assert targets["member-0"] == {(one, index) for one in (topic, other) for index in (0, 1, 2)}
    assert targets["member-1"] == {(one, index) for one in (topic, other) for index in (3, 4)}
    assert targets["member-2"] == {(one, index) for one in (topic, other) for index in (5, 6)}


def test_static_members_keep_their_range_under_a_new_member_id() -> None:
    topic = TOPICS[0]
    wanted = frozenset({topic})
    first = assign_ranges([Subscriber("z", "desk", wanted), Subscriber("m", "till", wanted)], {topic: 2})
    then = assign_ranges([Subscriber("a", "till", wanted), Subscriber("m", "desk", wanted)], {topic: 2})
    assert first["z"] == then["m"] == {(topic, 0)}
    assert first["m"] == then["a"] == {(topic, 1)}


def test_a_group_without_members_has_no_targets() -> None:
    assert assign_uniformly([], {TOPICS[0]: 3}) == {}
    assert assign_ranges([], {TOPICS[0]: 3}) == {}
