"""Durations and the state of a group in words, for a terminal."""

from typing import TYPE_CHECKING

from tailrace.cli.common import output

if TYPE_CHECKING:
    from tailrace.facts.lag import LagRow

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_ALIKE = 1.2  # two forecasts that differ by less are shown as one
RULES = {"age": "age", "size": "size", "budget": "disk budget", "hold_cap": "hold limit"}


def duration(seconds: float | None) -> str:
    """The two largest units: `3 h 20 min`, `45 s`."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    words: list[str] = []
    for unit, length in _UNITS:
        if left >= length or (unit == "s" and not words):
            words.append(f"{left // length} {unit}")
            left %= length
            if len(words) == 2:
                break
        elif words:
            break
    return " ".join(words)


def roughly(seconds: float | None) -> str:
    """The same, below an hour with one unit: `40 min`."""
    return duration(seconds if seconds is None or seconds < 60 or seconds >= 3600 else seconds // 60 * 60)


def outlook(row: "LagRow", now_ms: int) -> str:
    """Returns what will become of the lag, in words."""
    expected, least = row.loss_seconds(now_ms), row.loss_low_seconds(now_ms)
    if row.unread_lost:
        return f"has lost {output.plural(row.unread_lost, 'message')}"
    if least is not None:
        return _loss(expected, least, row)
    if not row.lag_records:
        return ""
    return "" if row.catchup_seconds is None else f"catches up in {duration(row.catchup_seconds)}"


def _loss(expected: float | None, least: float, row: "LagRow") -> str:
    rule = f" ({RULES.get(row.rule, row.rule)})" if row.rule else ""
    if row.estimate:
        return f"loses messages in ≥ {duration(least)}{rule}"
    if expected is None:
        return f"may lose messages in {duration(least)}{rule}"
    if expected <= least * _ALIKE or duration(least) == duration(expected):
        return f"loses messages in {duration(expected)}{rule}"
    return f"loses messages in {duration(least)} to {duration(expected)}{rule}"
