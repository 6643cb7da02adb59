"""The demo as it is run without a terminal: what it says at the end, how long it takes, and that it can fail."""

import io
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from demo import __main__ as command
from demo import act_one, act_two
from demo.ledger import Ledger
from demo.screen import BARS, Screen, bars
from demo.spark_start import SparkStart, rehearse

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_it_loses_nothing_says_so_and_takes_about_a_minute(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--act", "one", "--picture", picture],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "killed with kill -9",
        "serves after",
        "just what the killed one had not committed",
        "159 labels were printed",
        "Label 13 failed three times, and was set aside:",
        "1 dead-lettered",
        "loses messages in",
        "read: nothing is lost.",
        "No lost messages are recorded.",
        "Healthy: no damage.",
        "its CRC-32C does not match",
    ):
        assert said in done.stdout
    names, figures = done.stdout.partition("Everything is counted.\n")[2].splitlines()[:2]
    assert names.split()[:4] == ["acknowledged", "read", "lost", "duplicated"]
    acknowledged, read, lost, duplicated, in_order, at_its_offset = figures.split()
    assert acknowledged == read
    assert (lost, duplicated, in_order, at_its_offset) == ("0", "0", "yes", "yes")
    assert "make\xa0demo" in "".join(ElementTree.parse(picture).getroot().itertext())
    assert took < 90
    assert [line for line in done.stdout.splitlines() if len(line.rstrip()) > 80] == []


def test_an_act_that_fails_ends_the_demo_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(act_one, "run", lambda screen, intermission: False)
    monkeypatch.setattr(sys, "argv", ["demo", "--act", "one"])
    assert command.main() == 1
    assert "not how it should end" in capsys.readouterr().err


def test_act_one_starts_spark_for_act_two_and_only_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []

    def plays(screen: Screen, intermission: Callable[[], None]) -> bool:
        intermission()
        return True

    monkeypatch.setattr(act_one, "run", plays)
    monkeypatch.setattr(act_two, "run", lambda screen, spark: True)
    monkeypatch.setattr(command.java, "is_installed", lambda: True)
    monkeypatch.setattr(SparkStart, "begin", lambda self, rehearsal=None: begun.append(rehearsal))
    screen = Screen(Console(file=io.StringIO()))
    assert command.play(["one"], screen)
    assert begun == []
    assert command.play(["one", "two"], screen)
    assert begun == [rehearse]


def test_a_lost_order_is_shown_and_is_a_failure() -> None:
    ledger = Ledger()
    ledger.sent = 2
    ledger.was_acknowledged(0, 0)
    ledger.was_acknowledged(1, 1)
    ledger.was_read(0, 0)
    shown = io.StringIO()
    assert not act_one.count(ledger, Screen(Console(file=shown, width=100)))
    names, figures = shown.getvalue().splitlines()[-2:]
    assert names.split()[:3] == ["acknowledged", "read", "lost"]
    assert figures.split()[:3] == ["2", "1", "1"]


def test_bars_are_empty_for_nothing_and_full_for_twice_the_pace() -> None:
    drawn = bars([0, 1, 2000, 4000, 1_000_000], "").plain
    assert drawn == BARS[0] + BARS[1] + BARS[4] + BARS[-1] + BARS[-1]
