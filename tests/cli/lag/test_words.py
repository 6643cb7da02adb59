"""The outlook of a group in words."""

import pytest

from tailrace.cli.lag.words import outlook
from tailrace.facts.lag import LagRow

NOW_MS = 1_000_000
ROW = LagRow("orders", 0, 3, 0, 10, 7, 70, True, 0, 1.0, 0.0, None, None, "age", "ok", 0, False)


@pytest.mark.parametrize(
    ("least_s", "expected_s", "words"),
    [
        (0.6, 1.2, "loses messages in 1 s (age)"),
        (60, 70, "loses messages in 1 min 10 s (age)"),
        (60, 90, "loses messages in 1 min to 1 min 30 s (age)"),
        (60, None, "may lose messages in 1 min (age)"),
    ],
)
def test_a_loss_is_a_range_where_its_ends_differ(least_s: float, expected_s: float | None, words: str) -> None:
    expected = None if expected_s is None else NOW_MS + round(1000 * expected_s)
    assert outlook(ROW._replace(loss_at=expected, loss_low_at=NOW_MS + round(1000 * least_s)), NOW_MS) == words
