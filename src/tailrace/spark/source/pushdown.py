"""Filters that Spark pushes down to a batch, as a smaller range to read.

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

from tailrace.spark.columns.ranges import ALL, NumberRange

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions on rows; None is no condition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offsets: NumberRange = ALL
    times: NumberRange = ALL

    def within(self, other: "RowFilter") -> "RowFilter":
        return RowFilter(
            _both(self.topics, other.topics),
            _both(self.partitions, other.partitions),
            self.offsets.within(other.offsets),
            self.times.within(other.times),
        )


def row_filter(filters: Iterable[Filter]) -> RowFilter:
    """Returns conditions that every row satisfies which passes the filters. Other rows may satisfy them, too."""
    found = RowFilter()
    for one in filters:
        found = found.within(_row_filter(one))
    return found


def _row_filter(one: Filter) -> RowFilter:
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
            return RowFilter()


def _among(column: str, values: list[Any]) -> RowFilter:
    if column == "topic" and all(isinstance(value, str) for value in values):
        return RowFilter(topics=frozenset(values))
    if not values or not all(_is_number(value) for value in values):
        return RowFilter()
    numbers = [_number(value) for value in values]
    if column == "partition":
        return RowFilter(partitions=frozenset(numbers))
    return _between(column, min(numbers), max(numbers))


def _between(column: str, first: int, last: int) -> RowFilter:
    if column == "offset":
        return RowFilter(offsets=NumberRange(first, last))
    if column == "timestamp":
        # Whole milliseconds between microseconds.
        first_ms = first if first == ALL.first else -(-first // 1000)
        last_ms = last if last == ALL.last else last // 1000
        return RowFilter(times=NumberRange(first_ms, last_ms))
    return RowFilter()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, datetime) and value.tzinfo is not None)


def _number(value: Any) -> int:
    """A time as Spark has it: in microseconds."""
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else int(value)


def _both(some: frozenset[T] | None, others: frozenset[T] | None) -> frozenset[T] | None:
    if some is None or others is None:
        return others if some is None else some
    return some & others
