"""The forecast of a loss, compared with what then happens on a virtual clock."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor.simulation import RECORD_BYTES, World

from tailrace.facts.segments import SegmentFact
from tailrace.monitor.figures.forecast import NO_LOSS, Budget, Hold, Limits, Rule, Walk

WRITE = 100  # records a second: a segment each ten seconds
BY_AGE = {"retention_ms": 3_600_000}
BY_SIZE = {"retention_bytes": 3600 * WRITE * RECORD_BYTES}


def steady(read: int, retention: dict[str, int], **more: int) -> World:
    world = World(lambda _: WRITE, lambda _: read, **retention, **more)  # type: ignore[arg-type]
    for _ in range(60):
        world.step()
    return world


@pytest.mark.parametrize("retention", [BY_AGE, BY_SIZE], ids=["age", "size"])
@pytest.mark.parametrize("read", [0, 70, 95])
@pytest.mark.parametrize("tick_s", [10, 300])
def test_the_forecast_at_steady_rates_is_right_within_a_tenth(
    retention: dict[str, int], read: int, tick_s: int
) -> None:
    world = steady(read, retention, tick_s=tick_s)
    told = []
    while world.lost_at is None and world.now < world.began + 100_000:
        if world.now % 500 == 0:
            told.append((world.now, world.forecast(WRITE, read)))
        world.step()
    assert world.lost_at is not None
    assert told
    for at, forecast in told:
        left = world.lost_at - at
        assert abs(forecast.seconds - left) <= max(0.1 * left, tick_s), (at, forecast, left)
    assert {forecast.rule for _, forecast in told} == {Rule.AGE if retention is BY_AGE else Rule.SIZE}


@pytest.mark.parametrize("retention", [BY_AGE, BY_SIZE], ids=["age", "size"])
def test_a_reader_that_is_as_fast_as_the_writer_loses_nothing(retention: dict[str, int]) -> None:
    world = steady(WRITE, retention)
    assert world.forecast(WRITE, WRITE) == NO_LOSS
    world.run_until_lost(20_000)
    assert world.lost_at is None


@settings(max_examples=60, deadline=None)
@given(
    write=st.integers(20, 400),
    share=st.sampled_from([0.0, 0.3, 0.7, 0.9]),
    tick_s=st.sampled_from([1, 10, 300]),
    segment_s=st.integers(5, 200),
    keep_s=st.integers(600, 4000),
    by_size=st.booleans(),
)
def test_without_rounding_the_forecast_is_never_later_than_the_loss(
    write: int, share: float, tick_s: int, segment_s: int, keep_s: int, by_size: bool
) -> None:
    read = int(write * share)
    limit = {"retention_bytes": keep_s * write * RECORD_BYTES} if by_size else {"retention_ms": keep_s * 1000}
    size = segment_s * write * RECORD_BYTES
    world = World(lambda _: write, lambda _: read, segment_bytes=size, tick_s=tick_s, **limit)  # type: ignore[arg-type]
    for _ in range(100):
        world.step()
    asked, forecast = world.now, world.forecast(write, read, rounded=False)
    world.run_until_lost(80_000)
    assert world.lost_at is not None
    # One segment more may be read in the second in which it goes.
    assert forecast.seconds <= world.lost_at - asked + 2
    assert forecast.seconds >= (world.lost_at - asked) * 0.9 - tick_s - 2 * segment_s / max(0.1, 1 - share)


def test_segments_in_front_keep_those_behind_them() -> None:
    """The first has a record from the future: nothing goes before it."""
    segments = [SegmentFact(0, 10, 1000, 100_000), SegmentFact(10, 20, 1000, 10_000), SegmentFact(20, 30, 10, 20_000)]
    walk = Walk(segments, Limits(retention_ms=5_000), 0, 0, 20_000)
    assert walk.forecast(15, 0, rounded=False).seconds == 85


def test_segments_of_unknown_age_count_as_old_as_the_one_before() -> None:
    segments = [SegmentFact(0, 10, 1000, 10_000), SegmentFact(10, 20, 1000, None), SegmentFact(20, 30, 10, 20_000)]
    walk = Walk(segments, Limits(retention_ms=60_000), 0, 0, 20_000)
    assert walk.forecast(15, 0, rounded=False) == (50, Rule.AGE)


def test_a_hold_lets_segments_go_when_it_reaches_its_limit() -> None:
    segments = [SegmentFact(0, 10, 1000, 10_000), SegmentFact(10, 20, 1000, 20_000)]

    def forecast(hold: Hold | None) -> tuple[float, Rule | None]:
        limits = Limits(retention_ms=1_000, segment_bytes=2000, hold=hold)
        return Walk(segments, limits, 1, 100, 20_000, 9_000).forecast(0, 0, rounded=False)

    assert forecast(None) == (0, Rule.AGE)
    assert forecast(Hold(5_000, -1, False)) == (30, Rule.HOLD_CAP)
    assert forecast(Hold(-1, 60_000, False)) == (49, Rule.HOLD_CAP)
    assert forecast(Hold(-1, -1, False)) == NO_LOSS
    assert forecast(Hold(5_000, -1, True)) == NO_LOSS
    for refuses in (False, True):  # it expires
        assert forecast(Hold(-1, -1, refuses, ends_s=70)) == (70, Rule.HOLD_CAP)
        assert forecast(Hold(-1, -1, refuses, ends_s=-20)) == (0, Rule.AGE)


def test_the_budget_takes_the_oldest_segments_of_all_logs_first() -> None:
    segments = [SegmentFact(0, 10, 1000, 10_000), SegmentFact(10, 20, 1000, 20_000)]
    older = {10_000: 3_000, 20_000: 4_000}
    budget = Budget(10_000, 9_000, 5_000, 100, lambda newest: older.get(newest, 5_000))
    walk = Walk(segments, Limits(budget=budget), 1, 100, 20_000)
    assert walk.forecast(0, 0, rounded=False) == (40, Rule.BUDGET)


def test_ticks_are_those_of_the_broker() -> None:
    segments = [SegmentFact(0, 10, 1000, 0), SegmentFact(10, 20, 1000, 90_000)]

    def seconds(tick_at: int | None, *, rounded: bool = True) -> float:
        limits = Limits(retention_ms=100_000, tick_ms=60_000, tick_at=tick_at)
        return Walk(segments, limits, 0, 0, 90_000).forecast(0, 0, rounded=rounded).seconds

    assert seconds(0) == 30  # at 120
    assert seconds(1_000) == 31
    assert seconds(130_000) == 40  # the next is the same to either side of the known one
    assert seconds(None) == 40  # half a tick later than 10
    assert seconds(0, rounded=False) == 10
