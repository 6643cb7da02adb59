"""The command line: `python -m bench.guard --help`."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from rich.console import Console
from rich.table import Table

from bench.guard import verdict
from bench.guard.side import READY
from bench.guard.work import LIMITS, title_of, unit_of
from bench.harness.broker_process import die_with_parent, environment
from bench.harness.measure import Bench
from bench.harness.place import Place, temporary_place
from bench.harness.runner import ProgressLine

ROOT = Path(__file__).parents[2]
RECORDED_BASE = Path(__file__).with_name("base.txt")
ATTEMPTS = 3  # until a path that looks slower is


def main() -> int:
    options = _parser().parse_args()
    base = options.base or os.environ.get("BASE") or default_base()
    progress = ProgressLine()
    found: dict[str, list[verdict.Path]] = {}
    with temporary_place() as place, tree_of(base, place) as base_tree:
        names = options.only or list(LIMITS)
        for _ in range(ATTEMPTS):
            for path in measure(Bench(place, options.quick, progress.tell), names, base_tree):
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
    parser.add_argument("--only", action="append", choices=list(LIMITS), help="this path; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, and no more")
    return parser


def default_base() -> str:
    """The recorded revision; the last commit before the working tree's changes where that one is not in this clone."""
    recorded = RECORDED_BASE.read_text().strip()
    if _git("rev-parse", "--verify", "--quiet", f"{recorded}^{{commit}}", check=False):
        return recorded
    return "HEAD" if _git("status", "--porcelain", "--", "src", "bench").strip() else "HEAD~1"


def _git(*words: str, check: bool = True) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=check, stdout=subprocess.PIPE).stdout


@contextmanager
def tree_of(revision: str, place: Place) -> Iterator[Path]:
    """`src` and `bench` of a revision, in a directory that is removed at the end."""
    packed = BytesIO(_git("archive", "--format=zip", revision, "src", "bench"))
    with place.directory() as path, ZipFile(packed) as archive:
        members = [name for name in archive.namelist() if not name.startswith("bench/results/")]
        archive.extractall(path, members)
        yield Path(path)


def measure(bench: Bench, names: list[str], base_tree: Path) -> Iterator[verdict.Path]:
    """Measures each path once, in rounds by several generations of processes."""
    values: dict[str, list[list[float]]] = {name: [[], []] for name in names}
    for generation in range(bench.pick(4, 1)):
        with ExitStack() as stack:
            sides = {tree: stack.enter_context(side(tree)) for tree in _in_turn(generation, ROOT, base_tree)}
            for name in names:
                runs = [partial(sides[tree].measure, name) for tree in (ROOT, base_tree)]
                turns = bench.take_turns(f"{name}, processes {generation + 1}", bench.pick(5, 2), *runs)
                for known, more in zip(values[name], turns, strict=True):
                    known += more
    for name, (ours, base) in values.items():
        yield verdict.Path(name, unit_of(name), LIMITS[name], tuple(ours), tuple(base))


def _in_turn(generation: int, *trees: Path) -> tuple[Path, ...]:
    """The process that starts first has the better memory: each side is the first in turn."""
    return trees[::-1] if generation % 2 else trees


class Side:
    """A process of `bench.guard.side` that is ready."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        said = self._read()
        assert said == READY, f"a side does not start: {said!r}"

    def measure(self, name: str) -> float:
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def side(tree: Path) -> Iterator[Side]:
    """Runs the `src` and the `bench` of a tree; the same hash seed on both sides makes the same dictionaries."""
    variables = {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.guard.side"],
        cwd=tree,
        env=environment() | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        yield Side(process)
        assert process.stdin is not None
        process.stdin.close()


def _show(found: dict[str, list[verdict.Path]], base: str) -> None:
    table = Table(title=f"Against {base}")
    for heading in ("path", "ours", "base", "ratio", "limit", "verdict"):
        table.add_column(heading)
    for name, measured in found.items():
        table.add_row(title_of(name), *verdict.words(measured))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
