"""The command line: `python -m bench --help`."""

import argparse
import json
import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.harness import Bench, Figure
from bench.measures import MEASURES, SPARK_MEASURES, UPKEEP_MEASURES
from bench.place import VARIABLE, temporary_place
from bench.report import Run, as_json, show

ALL = MEASURES | UPKEEP_MEASURES | SPARK_MEASURES
_WIDTH_IN_FILES = 140


class ProgressLine:
    """One line on stderr that is written over; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def tell(self, message: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def main() -> int:
    options = _parser().parse_args()
    names = options.only or list(options.chosen)
    run = _run(names, quick=options.quick)
    show(run, Console() if sys.stdout.isatty() else Console(width=_WIDTH_IN_FILES))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(run), indent=2, ensure_ascii=False) + "\n")
    return 1 if run.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures tailrace against the bare system.")
    parser.add_argument("--quick", action="store_true", help="a short run, of a minute at most")
    chosen = {"action": "store_const", "dest": "chosen"}
    parser.add_argument("--spark", const=SPARK_MEASURES, help="those of Spark, against its own connector", **chosen)
    parser.add_argument("--upkeep", const=UPKEEP_MEASURES, help="those of much history, 30 GB of it", **chosen)
    parser.set_defaults(chosen=MEASURES)
    parser.add_argument("--only", action="append", choices=list(ALL), help="run this measure; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.epilog = f"Data lies below ${VARIABLE} or the system's temporary directory, and is removed."
    return parser


def _run(names: list[str], *, quick: bool) -> Run:
    progress = ProgressLine()
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    started, start, load = datetime.now().astimezone(), perf_counter(), os.getloadavg()[0]
    with temporary_place() as place:
        bench = Bench(place, quick, progress.tell)
        for name in names:
            try:
                figures += ALL[name](bench)
            except Exception as error:  # noqa: BLE001 - the other measures still run
                failures[name] = f"{type(error).__name__}: {error}"
                progress.tell("")
                traceback.print_exc()
        progress.tell("")
        return Run(started, perf_counter() - start, quick, load, place.path, place.file_system, figures, failures)


if __name__ == "__main__":
    sys.exit(main())
