"""Parses a position in a partition: `earliest`, `latest`, an offset, `last:N` or a time."""

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tailrace.cli.common.output import ExitCode, Failure
from tailrace.util import times

GRAMMAR = f"earliest, latest, an offset, last:N, or a time ({times.GRAMMAR})"


@dataclass(frozen=True)
class Earliest:
    pass


@dataclass(frozen=True)
class Latest:
    pass


@dataclass(frozen=True)
class Offset:
    offset: int


@dataclass(frozen=True)
class Last:
    """So many before the end."""

    count: int


@dataclass(frozen=True)
class Time:
    """The first message that is not older."""

    timestamp: int


Position = Earliest | Latest | Offset | Last | Time


def parse(text: str, now: datetime, zone: tzinfo | None = None) -> Position:
    said = text.strip().lower()
    if said == "earliest":
        return Earliest()
    if said == "latest":
        return Latest()
    if re.fullmatch(r"\d{1,18}", said):
        return Offset(int(said))
    if last := re.fullmatch(r"last:(\d{1,18})", said):
        return Last(int(last[1]))
    if re.fullmatch(r"-\d+", said):
        raise times.NoTime(f"{text!r} has no unit: {said}h is a time, last:{said[1:]} so many messages before the end")
    try:
        return Time(times.milliseconds(times.parse(text, now, zone)))
    except times.UnrecognizedTime:
        raise times.NoTime(f"{text!r} is no position: expected is {GRAMMAR}") from None


def given(text: str, option: str) -> Position:
    """The position given with `option`; times are relative to now."""
    try:
        return parse(text, datetime.now().astimezone())
    except times.NoTime as error:
        raise Failure(f"{option}: {error}", ExitCode.USAGE) from None
