"""What the audience sees. On a terminal a picture that moves; elsewhere a line each second; the same words in both.

Everything is drawn a second time, off stage, for `--picture`: there only the last of the moving pictures remains, and
the picture ends where the act says so.
"""

import io
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo.clients import EVENTS_PER_SECOND, Reader, Writer

WIDTH = 80  # of the narrowest terminal that is usual
BAR_COLUMNS = 40  # of the last ticks
TICK_SECONDS = 0.2
BARS = " ▁▂▃▄▅▆▇█"


class Moving(Protocol):
    """A picture that moves: it is told when time has passed, and is a line where nothing can move."""

    def tick(self) -> None: ...

    def draw(self) -> RenderableType: ...

    def line(self) -> str: ...


@dataclass(slots=True)
class View:
    """What is going on, as drawn: the counts of both clients, tick by tick, and how the broker is."""

    writer: Writer
    reader: Reader
    broker: str = "serving"
    is_down: bool = False
    acknowledged: list[int] = field(default_factory=list)  # in each tick
    read: list[int] = field(default_factory=list)
    killed_at_tick: int | None = None
    _seen: tuple[int, int] = (0, 0)

    def is_killed(self) -> None:
        self.broker, self.is_down, self.killed_at_tick = "killed with kill -9", True, len(self.acknowledged)

    def serves_again(self, seconds: float) -> None:
        self.broker, self.is_down = f"restarted, serves after {seconds:.2f} s", False

    def tick(self) -> None:
        counts = (self.writer.ledger.acknowledged, len(self.reader.ledger.read))
        self.acknowledged.append(counts[0] - self._seen[0])
        self.read.append(counts[1] - self._seen[1])
        self._seen = counts

    def draw(self) -> RenderableType:
        ledger = self.writer.ledger
        numbers = Table.grid(padding=(0, 3))
        for justify in ("left", "right", "right", "left"):
            numbers.add_column(justify=justify)
        style = "bold red" if self.is_down else "bold green"
        numbers.add_row("broker", "", "", Text(self.broker, style))
        numbers.add_row(
            "producer", f"{ledger.acknowledged:,}", "acknowledged", bars(self.acknowledged[-BAR_COLUMNS:], "cyan")
        )
        numbers.add_row("consumer", f"{len(ledger.read):,}", "read", bars(self.read[-BAR_COLUMNS:], "magenta"))
        if self.killed_at_tick is not None:
            column = self.killed_at_tick - max(0, len(self.acknowledged) - BAR_COLUMNS)
            numbers.add_row("", "", "", Text(" " * max(0, column) + "▲ kill -9", "bold red"))
        last = [
            Text(f"offset {message.offset():>7,}   {(message.value() or b'').decode()}", "dim")
            for message in list(self.reader.last)
        ]
        what = f"the last orders read, {self.delay} after they were sent (median)"
        return Padding(Group(numbers, Text(), Text(what), *last), (1, 2, 0, 2))

    @property
    def delay(self) -> str:
        delays = sorted(self.reader.delays)
        return f"{delays[len(delays) // 2] * 1000:.1f} ms" if delays else "…"

    def line(self) -> str:
        ledger = self.writer.ledger
        return f"acknowledged {ledger.acknowledged:>7,}   read {len(ledger.read):>7,}   broker {self.broker}"


def bars(counts: list[int], style: str, most: float = 2 * EVENTS_PER_SECOND * TICK_SECONDS) -> Text:
    """A column for each count; a full one is twice the writer's pace in a tick, or what is said to be most, or more."""
    heights = (min(len(BARS) - 1, -(-count * (len(BARS) - 1) // max(1, int(most)))) for count in counts)
    return Text("".join(BARS[height] for height in heights), style)


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, width=WIDTH)
        self._off_stage = Console(highlight=False, width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
        self._is_in_picture = True
        self._said_at = 0.0

    def title(self, text: str) -> None:
        self._print(Text(text, "bold"))

    def step(self, text: str) -> None:
        lines = textwrap.fill(text, WIDTH - 2, subsequent_indent="  ")
        self._print(Text.assemble("\n", ("● ", "cyan"), lines))

    def say(self, text: str, style: str = "") -> None:
        for line in text.splitlines():
            self._print(Text(f"  {line}", style))

    def show(self, drawn: RenderableType) -> None:
        self._print(drawn)

    def _print(self, drawn: RenderableType) -> None:
        self.console.print(drawn)
        if self._is_in_picture:
            self._off_stage.print(drawn)

    def end_picture(self) -> None:
        """What follows is not in it."""
        self._is_in_picture = False

    @contextmanager
    def playing(self, view: Moving) -> Iterator[Callable[[float], None]]:
        """Gives a function that lets so many seconds pass, while the audience looks on."""
        if self.console.is_terminal:
            with Live(view.draw(), console=self.console, auto_refresh=False) as live:
                yield lambda seconds: self._pass(seconds, view, live)
                live.update(view.draw(), refresh=True)
        else:
            yield lambda seconds: self._pass(seconds, view, None)
            self.console.print(f"  {view.line()}", markup=False)
        self._off_stage.print(view.draw())

    def _pass(self, seconds: float, view: Moving, live: Live | None) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(TICK_SECONDS, left))
            view.tick()
            if live is not None:
                live.update(view.draw(), refresh=True)
            elif time.monotonic() - self._said_at >= 1:
                self._said_at = time.monotonic()
                self.console.print(f"  {view.line()}", markup=False)

    def save(self, path: Path) -> None:
        """What was shown, as a picture. It fetches nothing: the reader's own fixed-width font will do."""
        picture = self._off_stage.export_svg(title="make demo")
        picture = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", picture, flags=re.DOTALL)
        path.write_text(_TEXT.sub(_without_margin, picture))


_TEXT = re.compile(r'(<text [^>]*? x=")([0-9.]+)("[^>]*? textLength=")([0-9.]+)("[^>]*>)((?:&#160;)+)')
_COLUMN = 12.2  # how wide rich draws a character


def _without_margin(text: "re.Match[str]") -> str:
    """Some programs leave out spaces at the beginning of a text, so it is placed where its first letter is."""
    start, x, middle, length, end, spaces = text.groups()
    margin = _COLUMN * (len(spaces) // len("&#160;"))
    return f"{start}{float(x) + margin:g}{middle}{float(length) - margin:g}{end}"
