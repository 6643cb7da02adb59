"""The three offsets of a log stay in order, whatever is done to them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.layout.offsets import OffsetBounds

OFFSETS = st.integers(-2, 12)
CHANGES = {
    "appended": OffsetBounds.appended,
    "flushed": OffsetBounds.flushed,
    "deleted": OffsetBounds.deleted,
    "truncated": OffsetBounds.truncated,
}


def as_tuple(bounds: OffsetBounds) -> tuple[int, int, int]:
    return bounds.start, bounds.high_watermark, bounds.end


def model(change: str, offset: int, start: int, high_watermark: int, end: int) -> tuple[int, int, int] | None:
    """What the offsets are after the change; None where it must be refused."""
    if change == "appended":
        return (start, high_watermark, offset) if offset >= end else None
    if change == "flushed":
        return (start, max(high_watermark, offset), end) if offset <= end else None
    if change == "deleted":
        return (max(start, offset), high_watermark, end) if offset <= high_watermark else None
    return (start, offset, offset) if start <= offset <= end else None


@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), OFFSETS)))
def test_a_change_does_just_what_it_says_or_nothing_at_all(changes: list[tuple[str, int]]) -> None:
    bounds = OffsetBounds(0, 0, 0)
    for change, offset in changes:
        before = as_tuple(bounds)
        apply: Callable[[OffsetBounds, int], None] = CHANGES[change]
        expected = model(change, offset, *before)
        if expected is None:
            with pytest.raises(AssertionError):
                apply(bounds, offset)
        else:
            apply(bounds, offset)
        assert as_tuple(bounds) == (before if expected is None else expected)
        assert 0 <= bounds.start <= bounds.high_watermark <= bounds.end


@pytest.mark.parametrize(("start", "high_watermark", "end"), [(-1, 0, 0), (2, 1, 3), (0, 3, 2), (3, 3, 2)])
def test_offsets_out_of_order_are_refused_from_the_start(start: int, high_watermark: int, end: int) -> None:
    with pytest.raises(AssertionError, match="out of order"):
        OffsetBounds(start, high_watermark, end)


def test_the_bounds_say_what_they_are() -> None:
    assert repr(OffsetBounds(1, 2, 3)) == "OffsetBounds(start=1, high_watermark=2, end=3)"
