"""Rates over a minute and over ten, on a virtual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.monitor.figures.rates import Rate


@given(st.floats(0, 1e6), st.lists(st.floats(0.5, 120), min_size=1, max_size=50))
def test_a_steady_rate_is_right_from_the_first_sample_on(per_second: float, pauses: list[float]) -> None:
    at, rate = 0.0, Rate(0, 0)
    for pause in pauses:
        at += pause
        rate.add(per_second * at, at)
        assert rate.minute == pytest.approx(per_second, rel=1e-6, abs=1e-6)
        assert rate.ten_minutes == pytest.approx(per_second, rel=1e-6, abs=1e-6)


def test_a_minute_forgets_sooner_than_ten_and_extremes_last_half_an_hour() -> None:
    rate, value = Rate(0, 0), 0.0
    for second in range(0, 3600, 15):
        value += 15 * (100 if second < 1800 else 10)
        rate.add(value, second + 15)
    assert rate.minute == pytest.approx(10, rel=0.01)
    assert 10 < rate.ten_minutes < 20
    assert rate.most == pytest.approx(100, rel=0.01)
    for second in range(3600, 7500, 15):
        value += 150
        rate.add(value, second + 15)
    assert rate.most == pytest.approx(10, rel=0.01)


def test_a_number_that_falls_counts_as_standing_still() -> None:
    rate = Rate(100, 0)
    rate.add(50, 10)
    assert rate.minute == 0
    rate.add(60, 10)  # no time has passed
    rate.add(60, 20)
    assert rate.least < rate.minute
