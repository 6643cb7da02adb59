"""The assignor `simple`: balanced, whatever members had before, and as little as possible moves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.groups.consumer.state import Partition
from tailrace.broker.groups.share.assignor import ShareSubscriber, Targets, assign

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
counts: Any = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 7), min_size=1)


def members(count: int, *topics: bytes) -> list[ShareSubscriber]:
    return [ShareSubscriber(f"m{number:03}", frozenset(topics)) for number in range(count)]


def again(subscribers: list[ShareSubscriber], targets: Targets) -> list[ShareSubscriber]:
    return [one._replace(previous=frozenset(targets.get(one.member_id, ()))) for one in subscribers]


def sharing(targets: Targets) -> dict[Partition, int]:
    """How many members each partition has."""
    found: dict[Partition, int] = {}
    for target in targets.values():
        for partition in target:
            found[partition] = found.get(partition, 0) + 1
    return found


def moved(subscribers: list[ShareSubscriber], targets: Targets) -> int:
    """How many partitions were given to members that did not have them."""
    return sum(len(targets[one.member_id] - one.previous) for one in subscribers)


@pytest.mark.parametrize(
    ("member_count", "partition_count", "loads", "shared_by"),
    [
        (1, 4, [4], 1),
        (2, 4, [2, 2], 1),
        (3, 4, [1, 1, 2], 1),
        (4, 4, [1, 1, 1, 1], 1),
        (5, 4, [1, 1, 2, 2, 2], 2),  # 8 places for 5 members
        (6, 4, [1, 1, 1, 1, 2, 2], 2),
        (20, 1, [1] * 20, 20),
        (3, 2, [1, 1, 2], 2),
    ],
)
def test_members_share_where_there_are_more_than_partitions(
    member_count: int, partition_count: int, loads: list[int], shared_by: int
) -> None:
    targets = assign(members(member_count, A), {A: partition_count})
    assert sorted(map(len, targets.values())) == loads
    assert set(sharing(targets).values()) == {shared_by}


@st.composite
def any_members(draw: st.DrawFn, *, alike: bool) -> tuple[list[ShareSubscriber], dict[bytes, int]]:
    """Members that have had anything before, also what is not there any more."""
    partition_counts = draw(counts)
    topics = st.frozensets(st.sampled_from([A, B, C]), min_size=1)
    same = draw(topics)
    had = st.frozensets(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 9)), max_size=12)
    subscribers = [
        ShareSubscriber(f"m{number:03}", same if alike else draw(topics), draw(had))
        for number in range(draw(st.integers(1, 12)))
    ]
    return subscribers, partition_counts


@given(any_members(alike=True))
def test_members_that_subscribe_alike_have_equal_shares(case: tuple[list[ShareSubscriber], dict[bytes, int]]) -> None:
    subscribers, partition_counts = case
    targets = assign(subscribers, partition_counts)
    wanted = {(topic, index) for topic in subscribers[0].topics for index in range(partition_counts.get(topic, 0))}
    found = sharing(targets)
    assert found.keys() == wanted
    if wanted:
        assert set(found.values()) == {-(-len(subscribers) // len(wanted))}
        loads = [len(target) for target in targets.values()]
        assert max(loads) - min(loads) <= 1
        assert min(loads) >= 1


@given(any_members(alike=False))
def test_every_partition_has_a_member_and_no_member_is_idle(
    case: tuple[list[ShareSubscriber], dict[bytes, int]],
) -> None:
    subscribers, partition_counts = case
    targets = assign(subscribers, partition_counts)
    wanted = {topic for one in subscribers for topic in one.topics} & partition_counts.keys()
    found = sharing(targets)
    assert found.keys() == {(topic, index) for topic in wanted for index in range(partition_counts[topic])}
    for topic in wanted:
        readers = [one for one in subscribers if topic in one.topics]
        per_partition = [found[topic, index] for index in range(partition_counts[topic])]
        assert max(per_partition) == min(per_partition), "of one topic, each has as many"
        assert max(per_partition) <= len(readers)
    for one in subscribers:
        assert {topic for topic, _ in targets[one.member_id]} <= one.topics
        assert bool(targets[one.member_id]) == bool(one.topics & partition_counts.keys())


@given(any_members(alike=False))
def test_who_has_its_share_keeps_it(case: tuple[list[ShareSubscriber], dict[bytes, int]]) -> None:
    subscribers, partition_counts = case
    targets = assign(subscribers, partition_counts)
    assert assign(again(subscribers, targets), partition_counts) == targets
    assert assign(again(subscribers[::-1], targets), partition_counts) == targets, "in whatever order"


def test_a_member_more_moves_no_more_than_its_share() -> None:
    three = members(3, A)
    before = assign(three, {A: 12})
    four = again([*three, *members(4, A)[3:]], before)
    after = assign(four, {A: 12})
    assert moved(four, after) == 3
    assert {len(target) for target in after.values()} == {3}


def test_what_a_member_leaves_goes_to_the_others() -> None:
    four = members(4, A)
    before = assign(four, {A: 12})
    three = again(four[:3], before)
    after = assign(three, {A: 12})
    assert moved(three, after) == 3


def test_one_worker_more_on_one_partition_moves_nobody() -> None:
    twenty = members(20, A)
    before = assign(twenty, {A: 1})
    more = again(members(21, A), before)
    assert moved(more, assign(more, {A: 1})) == 1


def test_a_member_that_can_only_take_what_it_has_swaps() -> None:
    """`a` lacks a partition and so does partition 1, which `a` has: `b` gives it partition 0, and takes 1."""
    a = ShareSubscriber("a", frozenset([A]), frozenset([(A, 1)]))
    b = ShareSubscriber("b", frozenset([A]), frozenset([(A, 0)]))
    c = ShareSubscriber("c", frozenset([A]), frozenset([(A, 0)]))
    targets = assign([a, b, c], {A: 2})
    assert sharing(targets) == {(A, 0): 2, (A, 1): 2}
    assert sorted(map(len, targets.values())) == [1, 1, 2]


def test_topics_with_other_subscribers_are_shared_out_by_themselves() -> None:
    subscribers = [
        ShareSubscriber("a", frozenset([A])),
        ShareSubscriber("ab", frozenset([A, B])),
        ShareSubscriber("b", frozenset([B])),
    ]
    targets = assign(subscribers, {A: 4, B: 4})
    assert {member: len(target) for member, target in targets.items()} == {"a": 2, "ab": 4, "b": 2}


def test_nobody_and_nothing() -> None:
    assert assign([], {A: 3}) == {}
    assert assign(members(1, B), {A: 3}) == {"m000": set()}
    assert assign(members(1), {A: 3}) == {"m000": set()}
