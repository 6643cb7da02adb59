"""What every measure is made of: rounds that take turns, samples of them, and figures to show.

A *side* is a function that does its work once and returns what it measured; setting up and cleaning up stay outside of
what it times. `take_turns` runs several sides in rounds, backwards every other time, so that whatever drifts (a warming
cache, a neighbour on the machine) meets all of them alike. What is too close to call after these (`is_clear`) has some
more, whichever side of its limit it is on, as long as the run has time for that (`Leeway`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from statistics import median, quantiles
from time import perf_counter
from typing import Literal, TypeVar

from bench.harness.place import Place

Value = TypeVar("Value")
Kind = Literal["ratio", "difference"]
_ROUNDS_LEAST = 2
_TIMES_MOST = 3  # as many rounds as were planned, where it is close


@dataclass(frozen=True, slots=True)
class Sample:
    """The middle of some values, and the quartiles around it as their spread."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high, len(values))


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a figure: by the issue that brought it."""

    of: Literal["ours", "ratio", "difference"]
    bound: Literal["least", "most"]
    limit: float
    aim: float | None = None  # what would be better still

    def what_counts(self, sample: Sample) -> float:
        """Noise slows both sides down, so a ratio is judged by its median. An absolute figure has nothing to lean on
        but that noise never speeds anything up: it is judged by its better quartile."""
        if self.of == "ratio":
            return sample.median
        return sample.high if self.bound == "least" else sample.low

    def verdict(self, sample: Sample) -> str:
        value = self.what_counts(sample)
        if not self._is_within(value, self.limit):
            return "missed"
        return "ok" if self.aim is None or not self._is_within(value, self.aim) else "aim"

    def _is_within(self, value: float, limit: float) -> bool:
        return value >= limit if self.bound == "least" else value <= limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report. See `bench/__init__.py` for what the fields mean."""

    name: str
    title: str
    unit: str
    ours: Sample
    against: Sample | None = None
    baseline: str | None = None
    kind: Kind | None = None
    compared: Sample | None = None
    demanded: Demand | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.demanded is None:
            return "information"
        sample = self.ours if self.demanded.of == "ours" else self.compared
        assert sample is not None, f"{self.name} demands a comparison and has none"
        return self.demanded.verdict(sample)


def compare(
    name: str,
    title: str,
    unit: str,
    ours: Sequence[float],
    against: Sequence[float],
    baseline: str,
    *,
    kind: Kind = "ratio",
    demanded: Demand | None = None,
    note: str = "",
) -> Figure:
    """A figure of rounds in which both sides ran once each."""
    pairs = zip(ours, against, strict=True)
    compared = [a / b if kind == "ratio" else a - b for a, b in pairs]
    return Figure(
        name, title, unit, Sample.of(ours), Sample.of(against), baseline, kind, Sample.of(compared), demanded, note
    )


def is_clear(demand: Demand, ours: Sequence[float], against: Sequence[float]) -> bool:
    """Whether further rounds would most likely leave the verdict on the ratio as it is: the median is further from the
    limit than its standard error, which is about the distance of the quartiles by the root of their number.
    """
    ratio = Sample.of([a / b for a, b in zip(ours, against, strict=True)])
    return abs(ratio.median - demand.limit) * sqrt(ratio.count) >= ratio.high - ratio.low


@dataclass(slots=True)
class Leeway:
    """Time for further rounds of what is close, of a whole run together."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What a measure is given: where to work, how much to do, and whom to tell."""

    place: Place
    quick: bool
    tell: Callable[[str], None]
    patience_s: float = inf  # after so long no further round is begun, if two have counted
    leeway: Leeway = field(default_factory=Leeway)

    def pick(self, full: int, quick: int) -> int:
        """An amount of work for this run."""
        return quick if self.quick else full

    def take_turns(
        self,
        what: str,
        rounds: int,
        *sides: Callable[[], Value],
        warm_up: int = 1,
        is_clear: Callable[[list[list[Value]]], bool] = lambda values: True,
    ) -> list[list[Value]]:
        """The values of each side, round by round. One more round goes first and is not counted."""
        values: list[list[Value]] = [[] for _ in sides]
        start = perf_counter()
        for number in range(-warm_up, rounds):
            if number >= _ROUNDS_LEAST and perf_counter() - start > self.patience_s:
                break
            self.tell(f"{what}: round {number + 1} of {rounds}")
            _take_turn(number, sides, values)
        while self.leeway.seconds > 0 and (number := len(values[0])) < _TIMES_MOST * rounds and not is_clear(values):
            self.tell(f"{what}: round {number + 1}, as it is close")
            start = perf_counter()
            _take_turn(number, sides, values)
            self.leeway.seconds -= perf_counter() - start
        return values


def _take_turn(number: int, sides: Sequence[Callable[[], Value]], values: list[list[Value]]) -> None:
    turn = list(enumerate(sides))
    for which, side in reversed(turn) if number % 2 else turn:
        value = side()
        if number >= 0:
            values[which].append(value)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
