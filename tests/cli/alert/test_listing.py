"""What `tailrace alert list` draws, by the width of the terminal."""

import io

import pytest
from rich.console import Console

from tailrace.cli.alert import commands
from tailrace.facts.alerts import Alert, AlertRule, AlertState

MESSAGE = "group billing begins to miss messages of orders-0 in 42 min (rule: age). " * 2
RAISED = Alert(AlertRule.LOSS_AHEAD, "billing", "orders", 0, AlertState.RAISED, 0, 0, 60.0, 3600.0, MESSAGE)
DISK = RAISED._replace(rule=AlertRule.DISK_BUFFER, group="", topic="", state=AlertState.RESOLVED)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_terminal_has_each_message_below_its_alert(width: int) -> None:
    drawn = io.StringIO()
    commands._draw_blocks([(RAISED, 1), (DISK, None)], Console(file=drawn, width=width, markup=False))
    lines = drawn.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    words = " ".join(drawn.getvalue().split())
    assert words.count(" ".join(MESSAGE.split())) == 2
    assert "loss_ahead raised since 01-01" in words
    assert ": billing on orders group billing begins" in words
    assert "disk_buffer resolved since 01-01" in words
