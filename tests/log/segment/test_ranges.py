"""Ranges against a plain set of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.segment.trust import Ranges

LIMIT = 24
NUMBERS = st.integers(0, LIMIT)
CHANGES = st.lists(st.one_of(st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, st.none())))


@given(CHANGES)
def test_ranges_cover_what_a_set_of_the_same_numbers_holds(changes: list[tuple[int, int | None]]) -> None:
    ranges, numbers = Ranges(), set[int]()
    for start, end in changes:
        if end is None:
            ranges.truncate(start)
            numbers = {number for number in numbers if number < start}
        else:
            ranges.add(start, end)
            numbers |= set(range(start, end))
        for low in range(LIMIT + 2):
            for high in range(LIMIT + 2):
                assert ranges.cover(low, high) == (set(range(low, high)) <= numbers)


@given(st.lists(st.tuples(st.booleans(), NUMBERS, NUMBERS)))
def test_what_is_removed_is_not_covered_and_all_else_is(changes: list[tuple[bool, int, int]]) -> None:
    ranges, numbers = Ranges(), set[int]()
    for adds, start, end in changes:
        if adds:
            ranges.add(start, end)
            numbers |= set(range(start, end))
        else:
            ranges.remove(start, end)
            numbers -= set(range(start, end))
    assert {number for low, high in ranges for number in range(low, high)} == numbers
    assert all(ranges.cover(low, high) for low, high in ranges)
    edges = [edge for both in ranges for edge in both]
    assert edges == sorted(set(edges))


@given(CHANGES)
def test_ranges_are_in_order_and_never_touch(changes: list[tuple[int, int | None]]) -> None:
    ranges = Ranges()
    for start, end in changes:
        ranges.add(start, end) if end is not None else ranges.truncate(start)
    edges = [edge for both in ranges for edge in both]
    assert edges == sorted(set(edges))


def test_ranges_that_touch_become_one() -> None:
    ranges = Ranges()
    ranges.add(0, 5)
    ranges.add(10, 15)
    ranges.add(5, 10)
    assert list(ranges) == [(0, 15)]


def test_a_cut_inside_of_a_range_keeps_its_first_part() -> None:
    ranges = Ranges()
    ranges.add(0, 5)
    ranges.add(10, 15)
    ranges.truncate(12)
    assert list(ranges) == [(0, 5), (10, 12)]
