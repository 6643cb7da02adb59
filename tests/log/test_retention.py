"""What a log need not keep: Kafka's rules, for any segments."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.retention import Reason, RetentionLimits, SegmentFacts, deletable, is_age_missing

NOW = 100_000
AGE, SIZE, START = Reason.AGE, Reason.SIZE, Reason.START


def log_of(*segments: tuple[int, int | None]) -> list[SegmentFacts]:
    """Of ten records each; size and largest timestamp."""
    return [SegmentFacts(10 * n, 10 * n + 10, size, time) for n, (size, time) in enumerate(segments)]


def reasons(
    segments: list[SegmentFacts],
    *,
    start: int = 0,
    high_watermark: int | None = None,
    retention_ms: int = -1,
    retention_bytes: int = -1,
) -> list[Reason]:
    end = segments[-1].end_offset
    size = sum(segment.size for segment in segments)
    watermark = end if high_watermark is None else high_watermark
    return deletable(segments, RetentionLimits(start, watermark, size, retention_ms, retention_bytes), NOW)


def test_a_segment_is_deleted_exactly_when_its_newest_record_exceeds_retention_ms() -> None:
    assert reasons(log_of((5, NOW - 1000), (5, NOW)), retention_ms=999) == [AGE]
    assert reasons(log_of((5, NOW - 1000), (5, NOW)), retention_ms=1000) == []


def test_a_segment_stays_if_one_before_it_does() -> None:
    assert reasons(log_of((5, NOW), (5, 1), (5, NOW)), retention_ms=1000) == []


def test_by_size_so_many_go_that_retention_bytes_are_left() -> None:
    segments = log_of((10, 1), (20, 1), (30, 1), (40, 1))
    assert reasons(segments, retention_bytes=100) == []
    assert reasons(segments, retention_bytes=91) == []
    assert reasons(segments, retention_bytes=90) == [SIZE]
    assert reasons(segments, retention_bytes=70) == [SIZE, SIZE]
    assert reasons(segments, retention_bytes=69) == [SIZE, SIZE]
    assert reasons(segments, retention_bytes=0) == [SIZE] * 4


def test_what_lies_below_the_start_goes_whatever_else_is_kept() -> None:
    assert reasons(log_of((5, NOW), (5, NOW), (5, NOW)), start=20) == [START, START]
    assert reasons(log_of((5, NOW), (5, NOW), (5, NOW)), start=19) == [START]


def test_the_active_segment_goes_too_where_all_has_expired_and_an_empty_one_stays() -> None:
    assert reasons(log_of((5, 1), (5, 1)), retention_ms=1000) == [AGE, AGE]
    empty = SegmentFacts(20, 20, 0, None)
    assert reasons([*log_of((5, 1), (5, 1)), empty], retention_ms=1000) == [AGE, AGE]
    assert reasons([*log_of((5, 1), (5, 1)), empty], start=20, retention_bytes=0) == [START, START]


def test_what_is_not_flushed_stays() -> None:
    assert reasons(log_of((5, 1), (5, 1)), high_watermark=19, retention_ms=1000, retention_bytes=0) == [SIZE]


@pytest.mark.parametrize("retention_ms", [-1, 1000])
def test_an_age_that_nobody_knows_has_to_be_looked_for_if_it_matters(retention_ms: int) -> None:
    segments = log_of((5, 1), (5, None), (5, 1))
    keep = RetentionLimits(0, 30, 15, retention_ms, -1)
    found = deletable(segments, keep, NOW)
    assert found == ([AGE] if retention_ms >= 0 else [])
    assert is_age_missing(segments[1], keep) is (retention_ms >= 0)
    assert not is_age_missing(segments[2], keep)
    assert not is_age_missing(segments[1], keep._replace(high_watermark=19))


def test_without_limits_everything_is_kept() -> None:
    assert reasons(log_of((5, 0), (5, 0)), retention_ms=-1, retention_bytes=-1) == []


facts = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 1000), st.one_of(st.none(), st.integers(NOW - 3000, NOW))),
    min_size=1,
    max_size=12,
)


@given(facts, st.data(), st.integers(-1, 3000), st.integers(-1, 3000))
def test_whatever_goes_may_go_and_what_stays_first_may_not(
    drawn: list[tuple[int, int, int | None]], data: st.DataObject, retention_ms: int, retention_bytes: int
) -> None:
    bounds = [0, *accumulate(count for count, _, _ in drawn)]
    segments = [
        SegmentFacts(base, end, size, time)
        for (base, end), (_, size, time) in zip(pairwise(bounds), drawn, strict=True)
    ]
    start = data.draw(st.integers(0, bounds[-1]))
    high_watermark = data.draw(st.integers(start, bounds[-1]))
    total = sum(segment.size for segment in segments)
    found = deletable(segments, RetentionLimits(start, high_watermark, total, retention_ms, retention_bytes), NOW)
    left = total
    for segment, reason in zip(segments, found, strict=False):
        left -= segment.size
        assert segment.end_offset <= high_watermark
        if reason is SIZE:
            assert left >= retention_bytes >= 0
        if reason is AGE:
            assert segment.largest_timestamp is not None
            assert segment.largest_timestamp + retention_ms < NOW
        if reason is START:
            assert segment.end_offset <= start
    if len(found) < len(segments):
        kept = segments[len(found)]
        may_go = kept.end_offset <= high_watermark
        is_old = kept.largest_timestamp is not None and 0 <= retention_ms < NOW - kept.largest_timestamp
        assert not (may_go and (is_old or kept.end_offset <= start or 0 <= retention_bytes <= left - kept.size))
