"""The same pipeline with changed code, from the beginning, into another place; and both beside what was sent."""

import difflib
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo import pipelines
from demo.events import WINDOW_MS, Book, Counts, Verdict, Windows, compare, total
from demo.live_scene import Lived
from demo.screen import TICK_SECONDS, Screen
from tailrace.spark import Parquet, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.replay.replay import Plan, Replayed

BAR = 32  # columns of the longest
WINDOWS_MAX = 10  # of the chart: the last ones


@dataclass(slots=True)
class ReplayView:
    """How far it is."""

    share: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def note(self, share: float) -> None:
        self.share = max(self.share, share)

    def tick(self) -> None:
        pass

    def draw(self) -> RenderableType:
        done = round(self.share * BAR)
        return Text.assemble("  ", ("━" * done, "magenta"), ("━" * (BAR - done), "dim"), f"  {self.line()}")

    def line(self) -> str:
        return f"replay {self.share:4.0%}   {time.monotonic() - self.began:.1f} s"


def run(bootstrap: str, directory: Path, lived: Lived, screen: Screen) -> bool:
    """Whether live and replay say what they must."""
    screen.step("A month later, the shop asks for its revenue, too. The code is changed:")
    show_changes(pipelines.traffic, pipelines.revenue, screen)
    screen.step("It runs over everything from the beginning, into another directory. The plan:")
    plan = pipelines.revenue.plan_replay(bootstrap, state=lived.state)
    screen.say(described(plan))
    place = directory / "revenue"
    replayed = replay(bootstrap, place, plan, lived, screen)
    screen.say(f"Live left out what came late ({plan.late_in_live or 0:,} groups of events). Here it counts.")
    live, history = windows_of(lived.spark, lived.parquet), windows_of(lived.spark, place)
    screen.step("Live beside replay, window by window:")
    screen.show(chart(live, history, lived.book))
    return count(lived, live, history, replayed.rows_read or 0, screen)


def replay(bootstrap: str, place: Path, plan: "Plan", lived: Lived, screen: Screen) -> "Replayed":
    view = ReplayView()
    with ThreadPoolExecutor(1) as threads, screen.playing(view) as let_pass:
        result = threads.submit(
            partial(pipelines.revenue.replay, bootstrap, sink=Parquet(str(place))),
            plan=plan,
            state=lived.state,
            spark=lived.spark,
            on_progress=view.note,
        )
        while not result.done():
            let_pass(TICK_SECONDS)
        view.note(1.0)
    return result.result()


def show_changes(before: Pipeline, after: Pipeline, screen: Screen) -> None:
    old, new = (inspect.getsource(one.transform).splitlines() for one in (before, after))
    for line in difflib.unified_diff(old, new, lineterm="", n=0):
        if line[0] in "+-" and line[:3] not in ("+++", "---"):
            screen.say(f"  {line[0]} {line[1:]}", "green" if line[0] == "+" else "red")


def described(plan: "Plan") -> str:
    extent = plan.extent
    what = f"{extent.count:,} messages in {len(extent.parts)} partitions, {extent.bytes / 1e6:.1f} MB"
    return f"{what}, {extent.completeness}."


def windows_of(spark: "SparkSession", path: Path) -> dict[int, Counts]:
    """What Parquet has; a window that is there twice is counted twice."""
    found: dict[int, Counts] = {}
    rows = spark.read.parquet(str(path)).selectExpr("unix_millis(window.start) AS begin", "*").collect()
    for row in rows:
        cents = int((row["revenue"] or 0) * 100) if "revenue" in row else 0
        found[row["begin"]] = found.get(row["begin"], Counts()) + Counts(row["views"], row["orders"], cents)
    return dict(sorted(found.items()))


def chart(live: Windows, history: Windows, book: Book) -> Padding:
    table = Table.grid(padding=(0, 3, 0, 0))
    for justify in ("left", "right", "right", "right", "left"):
        table.add_column(justify=justify)
    legend = Text.assemble(("█ live ", "cyan"), ("▒ late ", "magenta"), ("░ still open", "dim"))
    table.add_row(*(Text(name, "dim") for name in ("window", "live", "replay", "revenue")), legend)
    most = max((one.events for one in history.values()), default=1)
    for begin, one in list(history.items())[-WINDOWS_MAX:]:
        there = live.get(begin)
        table.add_row(
            f"{datetime.fromtimestamp(begin / 1000):%H:%M:%S}",
            "–" if there is None else f"{there.events:,}",
            f"{one.events:,}",
            f"{one.cents / 100:,.2f}",
            bar(0 if there is None else there.events, one.events, most, begin + WINDOW_MS > book.watermark_ms),
        )
    if (before := len(history) - WINDOWS_MAX) > 0:
        table.add_row("", "", "", "", Text(f"and {before} windows before", "dim"))
    return Padding(table, (0, 2))


def bar(live: int, history: int, most: int, is_open: bool) -> Text:
    """What the replay has, as long as it is; the part of it that live has, too, in its own colour."""
    length, ours = round(history * BAR / most), round(live * BAR / most)
    if is_open:
        return Text("░" * length, "dim")
    return Text.assemble(("█" * min(ours, length), "cyan"), ("▒" * (length - ours), "magenta"))


def count(lived: Lived, live: Windows, history: Windows, rows_read: int, screen: Screen) -> bool:
    """Everything that was sent is somewhere, once."""
    book = lived.book
    closed = {begin: Counts(one.views, one.orders) for begin, one in book.live().items()}  # live knows no money
    verdicts = compare(closed, live), compare(book.replayed(), history)
    still_open = total(book.in_time) - total(closed)
    malformed = lived.malformed, rows_read - total(history)
    screen.step("Everything is counted, and compared with what the shop knows that it sent.")
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(8):
        table.add_column(justify="right")
    names = ("", "sent", "in Parquet", "malformed", "late", "still open", "lost", "twice")
    table.add_row(*(Text(name, "dim") for name in names))
    table.add_row("live", *figures(book, verdicts[0], malformed[0], total(book.late), still_open))
    table.add_row("replay", *figures(book, verdicts[1], malformed[1], 0, 0))
    screen.show(Padding(table, (0, 2)))
    for reason in book.failures[:3]:
        screen.say(f"not acknowledged: {reason}", "red")
    is_whole = all(count == book.malformed for count in malformed) and not book.failures
    return is_whole and all(verdict.is_right for verdict in verdicts)


def figures(book: Book, verdict: Verdict, malformed: int, late: int, still_open: int) -> list[Text]:
    good, bad = "bold green", "bold red"
    is_complete = verdict.counted + malformed + late + still_open == book.sent
    return [
        Text(f"{book.sent:,}", "bold"),
        Text(f"{verdict.counted:,}", good if is_complete and verdict.is_right else bad),
        Text(f"{malformed:,}", good if malformed == book.malformed else bad),
        Text(f"{late:,}", "bold"),
        Text(f"{still_open:,}", "bold"),
        Text(f"{verdict.lost:,}", bad if verdict.lost else good),
        Text(f"{verdict.doubled:,}", bad if verdict.doubled else good),
    ]
