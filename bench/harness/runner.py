"""Runs measures one after the other, and says how far it is."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from math import inf
from time import perf_counter
from typing import TypeVar

from bench.harness.bare_disk import bare_syncs
from bench.harness.measure import Bench, Figure, Leeway, percentile
from bench.harness.place import temporary_place
from bench.harness.report import Disk, PeerInfo, Run

Subject = TypeVar("Subject")
_SYNCS = 500


class ProgressLine:
    """One line on stderr that is written over. Where that is no terminal, a line for each measure."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._start = perf_counter()

    def tell(self, message: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[K{self._elapsed() if message else ''}{message}", end="", file=sys.stderr, flush=True)

    def begin(self, measure: str) -> None:
        if not self._is_shown:
            print(f"{self._elapsed()}{measure}", file=sys.stderr, flush=True)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(perf_counter() - self._start), 60)
        return f"{minutes:2}:{seconds:02}  "


def run(
    measures: Mapping[str, Callable[[Subject], Iterable[Figure]]],
    *,
    quick: bool,
    given: Callable[[Bench], AbstractContextManager[Subject]],
    full: bool = False,
    patience_s: float = inf,
    leeway_s: float = 0.0,
    peers: tuple[PeerInfo, ...] = (),
) -> Run:
    """All of them; one that crashes does not stop the others. `given` makes what they are given, and ends it."""
    progress = ProgressLine()
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    started, start, load = datetime.now().astimezone(), perf_counter(), os.getloadavg()[0]
    with temporary_place() as place:
        bench = Bench(place, quick, progress.tell, patience_s, Leeway(0.0 if quick else leeway_s))
        number = bench.pick(_SYNCS, _SYNCS // 5)
        syncs = bare_syncs(bench, number)
        with given(bench) as subject:
            for name, measure in measures.items():
                progress.begin(name)
                try:
                    figures.extend(measure(subject))  # one after the other: what came before a crash is kept
                except Exception as error:  # noqa: BLE001 - the other measures still run
                    failures[name] = f"{type(error).__name__}: {error}".replace(sys.executable, "python")
                    progress.tell("")
                    traceback.print_exc()
        syncs += bare_syncs(bench, number)
        progress.tell("")
        disk = Disk(place.file_system, *(1e6 * percentile(syncs, percent) for percent in (50, 99)))
        return Run(started, perf_counter() - start, quick, load, disk, figures, failures, full, peers)
