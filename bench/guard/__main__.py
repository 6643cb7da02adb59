"""The command line: `python -m bench.guard --help`."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from rich.console import Console
from rich.table import Table

from bench.guard import verdict
from bench.guard.work import BROKER_WORK, prepare_fetch
from bench.harness import Bench
from bench.place import Place, temporary_place
from bench.processes import BrokerProcess, broker_process, environment
from bench.running import ProgressLine
from bench.serving import bare_writes

ROOT = Path(__file__).parents[2]
APPEND = "append"
ATTEMPTS = 3  # until a path that looks slower is


def main() -> int:
    options = _parser().parse_args()
    base = options.base or os.environ.get("BASE") or default_base()
    progress = ProgressLine()
    found: dict[str, list[verdict.Path]] = {}
    with temporary_place() as place, source_of(base, place) as base_source:
        names = options.only or [*BROKER_WORK, APPEND]
        for _ in range(ATTEMPTS):
            for path in measure(Bench(place, options.quick, progress.tell), names, base_source):
                found.setdefault(path.name, []).append(path)
            names = [name for name in names if verdict.failed(found[name])]
            if not names:
                break
        progress.tell("")
    _show(found, base)
    return 1 if names else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description="Fails where a hot path became slower.")
    parser.add_argument("--base", help="the revision to compare with; BASE in the environment does the same")
    parser.add_argument("--only", action="append", choices=[*BROKER_WORK, APPEND], help="this path; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, and no more")
    return parser


def default_base() -> str:
    """What the working tree came from: its commit, or that one's parent where nothing has changed since."""
    return "HEAD" if _git("status", "--porcelain", "--", "src").strip() else "HEAD~1"


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, stdout=subprocess.PIPE).stdout


@contextmanager
def source_of(revision: str, place: Place) -> Iterator[Path]:
    """The `src` of a revision, in a directory that goes away."""
    packed = BytesIO(_git("archive", "--format=zip", revision, "src"))
    with place.directory() as path, ZipFile(packed) as archive:
        archive.extractall(path)
        yield Path(path, "src")


def measure(bench: Bench, names: list[str], base_source: Path) -> Iterator[verdict.Path]:
    """Each of them once, in rounds by several generations of processes."""
    sources = {"ours": ROOT / "src", "base": base_source}
    values: dict[str, list[list[float]]] = {name: [[], []] for name in names}
    for generation in range(bench.pick(3, 1)):
        with ExitStack() as stack:
            brokers = [stack.enter_context(_broker(bench, source)) for source in sources.values()]
            for name in names:
                sides = _append_sides(sources) if name == APPEND else _broker_sides(bench, brokers, name)
                turns = bench.take_turns(f"{name}, processes {generation + 1}", bench.pick(5, 2), *sides)
                for side, more in zip(values[name], turns, strict=True):
                    side += more
    for name, (ours, base) in values.items():
        yield verdict.Path(name, _unit(name), tuple(ours), tuple(base))


def _unit(name: str) -> str:
    return BROKER_WORK[name].unit if name in BROKER_WORK else "µs"


@contextmanager
def _broker(bench: Bench, source: Path) -> Iterator[BrokerProcess]:
    with bench.place.directory() as data, broker_process(data, **_variables(source)) as broker:
        prepare_fetch(broker)
        yield broker


def _variables(source: Path) -> dict[str, str]:
    """The same dictionaries on both sides, and the package of one of them."""
    return {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}


def _broker_sides(bench: Bench, brokers: list[BrokerProcess], name: str) -> list[Callable[[], float]]:
    work = BROKER_WORK[name]

    def side(broker: BrokerProcess) -> float:
        if work.writes:
            bare_writes(bench, work.writes)
        return work.run(broker)

    return [partial(side, broker) for broker in brokers]


def _append_sides(sources: dict[str, Path]) -> list[Callable[[], float]]:
    return [partial(_append, environment() | _variables(source)) for source in sources.values()]


def _append(variables: dict[str, str]) -> float:
    command = [sys.executable, "-m", "bench.guard.append"]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    return float(done.stdout)


def _show(found: dict[str, list[verdict.Path]], base: str) -> None:
    table = Table(title=f"CPU time, against {base}")
    for heading in ("path", "ours", "base", "ratio", "verdict"):
        table.add_column(heading)
    for name, measured in found.items():
        title = BROKER_WORK[name].title if name in BROKER_WORK else "append of a batch of 1 KB"
        table.add_row(title, *verdict.words(measured))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
