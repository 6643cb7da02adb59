"""Durations and the state of a group in words, for a terminal."""

from typing import TYPE_CHECKING

from tailrace.cli.common import output

if TYPE_CHECKING:
    from tailrace.facts.lag import LagRow

_ALIKE = 1.2  # two forecasts that differ by less are shown as one
RULES = {"age": "age", "size": "size", "budget": "disk budget", "hold_cap": "hold limit"}


def roughly(seconds: float | None) -> str:
    """The same, below an hour with one unit: `40 min`."""
    return output.duration(seconds if seconds is None or seconds < 60 or seconds >= 3600 else seconds // 60 * 60)


def outlook(row: "LagRow", now_ms: int) -> str:
    """Returns what will become of the lag, in words."""
    expected, least = row.loss_seconds(now_ms), row.loss_low_seconds(now_ms)
    if row.unread_lost:
        return f"has lost {output.plural(row.unread_lost, 'message')}"
    if least is not None:
        return _loss(expected, least, row)
    if not row.lag_records:
        return ""
    return "" if row.catchup_seconds is None else f"catches up in {output.duration(row.catchup_seconds)}"


def _loss(expected: float | None, least: float, row: "LagRow") -> str:
    rule = f" ({RULES.get(row.rule, row.rule)})" if row.rule else ""
    if row.estimate:
        return f"loses messages in ≥ {output.duration(least)}{rule}"
    if expected is None:
        return f"may lose messages in {output.duration(least)}{rule}"
    if expected <= least * _ALIKE or output.duration(least) == output.duration(expected):
        return f"loses messages in {output.duration(expected)}{rule}"
    return f"loses messages in {output.duration(least)} to {output.duration(expected)}{rule}"
