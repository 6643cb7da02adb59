"""Parses a point in time as users write it.

`2026-11-15T10:00` and `2026-11-15`, with or without seconds and a zone; `10:00`, today; `now`, `today`, `yesterday`,
the latter two also with a time of day; `-2h` and `-1d12h`, before now. Local time unless a zone is given. Pure: `now`
is an argument.
"""

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

GRAMMAR = "2026-11-15T10:00, 10:00, now, today, yesterday, -2h"

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO = re.compile(r"-(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_DAYS = {"today": 0, "yesterday": 1}
_OF_A_DAY = re.compile(r"(?:(today|yesterday)(?:[ t]+|$))?(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?")
_OF_A_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{1,2}(?::?\d{2}.*)?)?")


class NoTime(ValueError):
    """The text is not a point in time. The message is meant for the user who wrote it."""


class UnrecognizedTime(NoTime):
    """The text has none of the forms in GRAMMAR."""


def parse(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Returns the moment that `text` names, with its zone. `now` must have one; `zone` is the local one, by default the
    machine's.
    """
    given = text.strip()
    try:
        if given.lower() == "now":
            return _local(now, zone)
        if _AGO.fullmatch(given):
            return _local(now.astimezone(UTC) - _duration(given), zone)  # exact hours, even across clock changes
        if given and (parts := _OF_A_DAY.fullmatch(given.lower())):
            day = _local(now, zone).date() - timedelta(days=_DAYS[parts[1] or "today"])
            of_day = time.fromisoformat(_padded(parts[2] or "00:00"))
            return _local(datetime.combine(day, of_day), zone)
        if _OF_A_DATE.fullmatch(given):
            return _local(datetime.fromisoformat(given), zone)
    except (ValueError, OverflowError) as error:
        raise NoTime(f"{text!r} is not a time: {error}") from None
    raise UnrecognizedTime(f"{text!r} is not a time. Use a form like: {GRAMMAR}")


def milliseconds(moment: datetime) -> int:
    """Returns the milliseconds since 1970, as Kafka counts."""
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _duration(text: str) -> timedelta:
    return sum((float(count) * _UNITS[unit] for count, unit in _STEP.findall(text)), timedelta())


def _padded(of_day: str) -> str:
    return of_day if of_day[2] == ":" else f"0{of_day}"


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    """Returns the moment in the local zone, if it has none, by the rules of that zone at that time rather
    than today's.
    """
    if moment.tzinfo is None and zone is not None:
        return moment.replace(tzinfo=zone)
    return moment.astimezone(zone)
