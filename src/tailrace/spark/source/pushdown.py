"""Filters that Spark pushes down to a batch, as less to read.

Spark checks every one of them again on the rows that come, so what is not understood here is slower and not wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tailrace.spark.columns.ranges import ALL, Span

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What rows must have; None is anything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offsets: Span = ALL
    times: Span = ALL

    def within(self, other: "Wanted") -> "Wanted":
        return Wanted(
            _both(self.topics, other.topics),
            _both(self.partitions, other.partitions),
            self.offsets.within(other.offsets),
            self.times.within(other.times),
        )


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """What all of them together let through, and perhaps more."""
    wanted = Wanted()
    for one in filters:
        wanted = wanted.within(_wanted_by(one))
    return wanted


def _wanted_by(one: Filter) -> Wanted:
    match one:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return _among(column, [value])
        case In((column,), values):
            return _among(column, list(values))
        case GreaterThan((column,), value) if _is_number(value):
            return _between(column, _number(value) + 1, ALL.last)
        case GreaterThanOrEqual((column,), value) if _is_number(value):
            return _between(column, _number(value), ALL.last)
        case LessThan((column,), value) if _is_number(value):
            return _between(column, ALL.first, _number(value) - 1)
        case LessThanOrEqual((column,), value) if _is_number(value):
            return _between(column, ALL.first, _number(value))
        case _:
            return Wanted()


def _among(column: str, values: list[Any]) -> Wanted:
    if column == "topic" and all(isinstance(value, str) for value in values):
        return Wanted(topics=frozenset(values))
    if not values or not all(_is_number(value) for value in values):
        return Wanted()
    numbers = [_number(value) for value in values]
    if column == "partition":
        return Wanted(partitions=frozenset(numbers))
    return _between(column, min(numbers), max(numbers))


def _between(column: str, first: int, last: int) -> Wanted:
    if column == "offset":
        return Wanted(offsets=Span(first, last))
    if column == "timestamp":
        # Whole milliseconds between microseconds.
        first_ms = first if first == ALL.first else -(-first // 1000)
        last_ms = last if last == ALL.last else last // 1000
        return Wanted(times=Span(first_ms, last_ms))
    return Wanted()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, datetime) and value.tzinfo is not None)


def _number(value: Any) -> int:
    """A time as Spark has it: in microseconds."""
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else int(value)


def _both(some: frozenset[T] | None, others: frozenset[T] | None) -> frozenset[T] | None:
    if some is None or others is None:
        return others if some is None else some
    return some & others
