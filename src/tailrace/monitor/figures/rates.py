"""Rates of a number that grows, such as an offset: averages over a minute and over ten, and extremes of the last hour.

Pure: time is an argument, in seconds. Averages are exponentially weighted and need no history; a new one is not biased
towards zero.
"""

import math
from typing import NamedTuple

MINUTE_S = 60.0
TEN_MINUTES_S = 600.0
HALF_HOUR_S = 1800.0
WEIGHT_MIN = 0.3  # of a minute's average before it counts as an extreme


class Extremes(NamedTuple):
    least: float
    most: float


class Rate:
    """The growth of a number per second. A number that falls, as an offset after a reset, counts as standing still."""

    __slots__ = ("_at", "_before", "_extremes", "_long", "_short", "_since", "_value", "_weight_long", "_weight_short")

    def __init__(self, value: float, at: float) -> None:
        self._value, self._at = value, at
        self._short = self._long = self._weight_short = self._weight_long = 0.0
        self._extremes: Extremes | None = None
        self._before: Extremes | None = None
        self._since = at

    def add(self, value: float, at: float) -> None:
        seconds = at - self._at
        if seconds <= 0:
            return
        grown = max(0.0, value - self._value) / seconds
        keep = math.exp(-seconds / MINUTE_S)
        self._short = self._short * keep + grown * (1 - keep)
        self._weight_short = self._weight_short * keep + 1 - keep
        keep = math.exp(-seconds / TEN_MINUTES_S)
        self._long = self._long * keep + grown * (1 - keep)
        self._weight_long = self._weight_long * keep + 1 - keep
        self._value, self._at = value, at
        self._note_extremes(at)

    def _note_extremes(self, at: float) -> None:
        if at - self._since >= HALF_HOUR_S:
            self._before = self._extremes if at - self._since < 2 * HALF_HOUR_S else None
            self._extremes, self._since = None, at
        if self._weight_short >= WEIGHT_MIN:
            now, old = self.minute, self._extremes
            if old is None or not old.least <= now <= old.most:
                self._extremes = Extremes(now, now) if old is None else Extremes(min(old[0], now), max(old[1], now))

    @property
    def minute(self) -> float:
        return self._short / self._weight_short if self._weight_short else 0.0

    @property
    def ten_minutes(self) -> float:
        return self._long / self._weight_long if self._weight_long else 0.0

    @property
    def least(self) -> float:
        """The smallest minute's average of the last half hour to hour, or the present one."""
        return min([self.minute, self.ten_minutes, *(one.least for one in self._kept())])

    @property
    def most(self) -> float:
        return max([self.minute, self.ten_minutes, *(one.most for one in self._kept())])

    def _kept(self) -> list[Extremes]:
        return [one for one in (self._extremes, self._before) if one is not None]
