"""What act two makes of its results: what is drawn, and what counts as a failure."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

pytest.importorskip("pyspark")

from demo import replay_scene
from demo.events import ORDER, PATIENCE_MS, VIEW, WINDOW_MS, Book, Counts, Event
from demo.live_scene import Lived
from demo.screen import Screen


@pytest.fixture
def lived() -> Lived:
    """Three events in a window that is closed, one of them late; one in a window that is open; two malformed."""
    book = Book(malformed=2)
    book.note(Event(VIEW, 0))
    book.note(Event(ORDER, 1, cents=250))
    book.note(Event(VIEW, WINDOW_MS + PATIENCE_MS))
    book.note(Event(VIEW, 2), is_late=True)
    return Lived(SimpleNamespace(), book, malformed=2, state=Path(), parquet=Path())  # type: ignore[arg-type]


LIVE = {0: Counts(1, 1)}
REPLAY = {0: Counts(2, 1, 250), WINDOW_MS + PATIENCE_MS: Counts(1)}


def counted(lived: Lived, live: dict[int, Counts], history: dict[int, Counts], read: int = 6) -> tuple[bool, list[str]]:
    shown = io.StringIO()
    is_good = replay_scene.count(lived, live, history, read, Screen(Console(file=shown, width=100)))
    return is_good, [" ".join(line.split()) for line in shown.getvalue().splitlines()[-2:]]


def test_everything_in_its_place_is_good(lived: Lived) -> None:
    is_good, lines = counted(lived, LIVE, REPLAY)
    assert is_good
    assert lines == ["live 6 2 2 1 1 0 0", "replay 6 4 2 0 0 0 0"]


def test_an_event_that_live_has_lost_is_a_failure(lived: Lived) -> None:
    is_good, lines = counted(lived, {0: Counts(0, 1)}, REPLAY)
    assert not is_good
    assert lines[0] == "live 6 1 2 1 1 1 0"


def test_a_window_that_the_replay_has_twice_is_a_failure(lived: Lived) -> None:
    is_good, lines = counted(lived, LIVE, REPLAY | {0: Counts(4, 2, 500)})
    assert not is_good
    assert lines[1].endswith("0 3")


def test_another_sum_is_a_failure(lived: Lived) -> None:
    assert not counted(lived, LIVE, REPLAY | {0: Counts(2, 1, 249)})[0]


def test_a_malformed_event_that_was_not_noticed_is_a_failure(lived: Lived) -> None:
    assert not counted(replace(lived, malformed=1), LIVE, REPLAY)[0]
    assert not counted(lived, LIVE, REPLAY, read=5)[0]


def test_an_event_that_the_broker_did_not_take_is_a_failure(lived: Lived) -> None:
    lived.book.failures.append("timed out")
    assert not counted(lived, LIVE, REPLAY)[0]


def test_a_bar_is_as_long_as_the_replay_and_tells_what_live_has() -> None:
    three_quarters = round(replay_scene.BAR * 0.75)
    rest = replay_scene.BAR - three_quarters
    assert replay_scene.bar(75, 100, 100, is_open=False).plain == "█" * three_quarters + "▒" * rest
    assert replay_scene.bar(0, 50, 100, is_open=True).plain == "░" * (replay_scene.BAR // 2)


def test_the_changes_of_the_code_are_shown() -> None:
    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=100))
    replay_scene.show_changes(replay_scene.pipelines.traffic, replay_scene.pipelines.revenue, screen)
    assert '+         F.sum("amount").alias("revenue"),' in shown.getvalue()
    assert "withWatermark" not in shown.getvalue()
