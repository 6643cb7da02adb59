"""The grammar of times and positions."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.common.topics import positions
from tailrace.cli.common.topics.positions import Earliest, Last, Latest, Offset, Time
from tailrace.util import times

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 15, 12, 30, 15, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("now", "2026-11-15T12:30:15+01:00"),
        ("today", "2026-11-15T00:00:00+01:00"),
        ("yesterday", "2026-11-14T00:00:00+01:00"),
        ("yesterday 9:05", "2026-11-14T09:05:00+01:00"),
        ("todayT18:00:01", "2026-11-15T18:00:01+01:00"),
        ("10:00", "2026-11-15T10:00:00+01:00"),
        ("-2h", "2026-11-15T10:30:15+01:00"),
        ("-1d12h", "2026-11-14T00:30:15+01:00"),
        ("-1.5h", "2026-11-15T11:00:15+01:00"),
        ("-500ms", "2026-11-15T12:30:14.500000+01:00"),
        ("-504h", "2026-10-25T12:30:15+01:00"),
        ("-528h", "2026-10-24T13:30:15+02:00"),
        ("-1w", "2026-11-08T12:30:15+01:00"),
        ("2026-11-15T10:00", "2026-11-15T10:00:00+01:00"),
        ("2026-11-15 10:00", "2026-11-15T10:00:00+01:00"),
        ("2026-07-01T10:00", "2026-07-01T10:00:00+02:00"),
        ("2026-11-15", "2026-11-15T00:00:00+01:00"),
        ("2026-11-15T10:00Z", "2026-11-15T11:00:00+01:00"),
        ("2026-11-15T10:00:00.25+05:30", "2026-11-15T05:30:00.250000+01:00"),
        ("  Yesterday ", "2026-11-14T00:00:00+01:00"),
    ],
)
def test_a_time_is_what_a_person_in_berlin_means_by_it(said: str, meant: str) -> None:
    assert times.parse(said, NOW, BERLIN).astimezone(BERLIN).isoformat() == meant


@pytest.mark.parametrize(
    "said", ["", "soon", "2h", "-", "-2", "-2x", "25:00", "2026-13-01", "tomorrow", "2026-11-15T10:00 or so", "-1h 5"]
)
def test_what_is_no_time_is_refused_in_words(said: str) -> None:
    with pytest.raises(times.NoTime, match="is not a time"):
        times.parse(said, NOW, BERLIN)


def test_the_zone_of_the_machine_counts_where_none_is_given() -> None:
    assert times.parse("2026-11-15T10:00", NOW) == datetime(2026, 11, 15, 10).astimezone()


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-840, 840))
def test_a_time_with_a_zone_is_that_time_wherever_it_is_read(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert times.parse(aware.isoformat(), NOW, BERLIN) == aware
    assert times.milliseconds(aware) == (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@given(st.text())
def test_any_text_is_a_time_or_is_refused(text: str) -> None:
    with suppress(times.NoTime):
        assert times.parse(text, NOW, BERLIN).tzinfo is not None


@given(st.integers(0, 10**6), st.sampled_from(["s", "m", "h", "d"]))
def test_a_while_ago_is_that_while_before_now(count: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
    try:
        found = times.parse(f"-{count}{unit}", NOW, BERLIN)
    except times.NoTime:
        assert NOW.timestamp() - count * seconds < datetime(2, 1, 1, tzinfo=UTC).timestamp()
    else:
        assert NOW.timestamp() - found.timestamp() == count * seconds


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("0", Offset(0)),
        ("1234", Offset(1234)),
        ("last:10", Last(10)),
        ("now", Time(times.milliseconds(NOW))),
        ("-1m", Time(times.milliseconds(NOW) - 60_000)),
    ],
)
def test_a_position_is_a_place_or_a_time(said: str, meant: positions.Position) -> None:
    assert positions.parse(said, NOW, BERLIN) == meant


def test_a_count_from_the_end_without_a_word_is_explained() -> None:
    with pytest.raises(times.NoTime, match="last:10"):
        positions.parse("-10", NOW, BERLIN)


def test_what_is_no_position_is_refused_with_what_there_is() -> None:
    with pytest.raises(times.NoTime, match=r"earliest, latest, an offset, last:N"):
        positions.parse("somewhere", NOW, BERLIN)
