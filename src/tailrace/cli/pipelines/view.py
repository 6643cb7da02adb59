"""Output of `tailrace run`: JSON lines, or a line per pipeline, which is updated in place on a terminal."""

import json
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import output

if TYPE_CHECKING:
    from tailrace.spark.pipelines.run import Outcome

_SECONDS = 10.0  # between two lines of a pipeline, where the output is not a terminal


class View:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._lines: dict[str, str] = {}
        self._said: dict[str, float] = {}
        self._live: Any = None

    def __enter__(self) -> "View":
        if not self._as_json and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True, highlight=False, markup=False), transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, name: str, topics: Sequence[str], guarantee: str) -> None:
        """Before its first batch."""
        if not self._as_json:
            with self._lock:
                print(f"{name} reads {', '.join(topics)}; rows arrive {guarantee}", file=sys.stderr, flush=True)

    def show(self, name: str, progress: dict[str, Any]) -> None:
        """A batch that is done."""
        with self._lock:
            if self._as_json:
                print(json.dumps({"pipeline": name, **progress}), flush=True)
                return
            self._rows[name] = self._rows.get(name, 0) + progress["rows"]
            self._lines[name] = line(name, self._rows[name], progress)
            if self._live is not None:
                self._live.update("\n".join(self._lines.values()))
            elif progress["rows"] and time.monotonic() - self._said.get(name, -_SECONDS) >= _SECONDS:
                self._said[name] = time.monotonic()
                print(self._lines[name], file=sys.stderr, flush=True)

    def end(self, name: str, outcome: "Outcome") -> None:
        if not self._as_json:
            restarts = f", started again {outcome.restarts} times" if outcome.restarts else ""
            batches = "1 batch" if outcome.batches == 1 else f"{outcome.batches:,} batches"
            with self._lock:
                print(f"{name}: {output.plural(outcome.rows, 'message')} in {batches}{restarts}", flush=True)


def line(name: str, rows: int, progress: dict[str, Any]) -> str:
    """`big  batch 12  1,234 messages  4,567/s  lag 0`, and what was not as usual."""
    parts = [name, f"batch {progress['batch']}", output.plural(rows, "message")]
    if progress["rows_per_second"]:
        parts.append(f"{output.number(progress['rows_per_second'])}/s")
    if progress["lag"] is not None:
        parts.append(f"lag {output.number(progress['lag'])}")
    parts += [f"{progress[what]:,} {what}" for what in ("corrupt", "late") if progress[what]]
    return "  ".join(parts)
