"""The results for people, as one table, and for machines, as the JSON that `bench/__init__.py` documents."""

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tailrace
from bench.harness.measure import Figure, Sample
from bench.harness.place import FileSystem
from tailrace.cli.doctor.machine import runs_optimized

SCHEMA = 2
_WIDTH_IN_FILES = 140
_COLOURS = {"aim": "bold green", "ok": "green", "missed": "bold red"}


@dataclass(frozen=True, slots=True)
class Disk:
    """Where the data lay, and how long a write of a few bytes and an fdatasync took there, in microseconds."""

    file_system: FileSystem
    sync_p50: float
    sync_p99: float


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """Whom ours was compared with."""

    name: str
    version: str
    durability: str  # what an acknowledgement means there
    missing: str | None  # why it could not be had


@dataclass(frozen=True, slots=True)
class Run:
    started: datetime
    seconds: float
    quick: bool
    load: float
    disk: Disk
    figures: list[Figure]
    failures: dict[str, str]
    full: bool = False
    peers: tuple[PeerInfo, ...] = ()


def show(run: Run) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_IN_FILES)
    table = Table()
    for heading in ("measure", "ours", "against", "ratio", "demanded", "verdict"):
        table.add_column(heading, justify="left" if heading in ("measure", "against", "verdict") else "right")
    for figure in run.figures:
        table.add_row(figure.title, ours(figure), against(figure), compared(figure), must(figure), _verdict(figure))
    console.print(table)
    console.print(caption(run))
    for figure in run.figures:
        if figure.note:
            console.print(f"[dim]{figure.title}: {figure.note}[/]")
    for measure, error in run.failures.items():
        console.print(f"[bold red]{measure} crashed:[/] {error}", markup=True)


def caption(run: Run) -> str:
    where = run.disk.file_system
    disk = f"{where.name} on {where.device}"
    if not where.is_real_disk:
        disk += ", which is NO DISK: what is said of syncing means nothing"
    length = "a quick run" if run.quick else "a full run" if run.full else "a run"
    syncing = f"write and fdatasync: p50 {run.disk.sync_p50:.0f} µs, p99 {run.disk.sync_p99:.0f} µs"
    return (
        f"{length} of {run.seconds:.0f} s on {disk} ({syncing}), with a load of {run.load:.1f} "
        f"on {os.cpu_count()} CPUs at its start, by Python {platform.python_version()}"
        f"{'' if runs_optimized() else ', built WITHOUT optimizations'}; ± is half the distance of the quartiles"
    )


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ours(figure: Figure) -> str:
    return f"{number(figure.ours.median)} {figure.unit} {_spread(figure.ours)}".rstrip()


def against(figure: Figure) -> str:
    return f"{number(figure.against.median)} {figure.baseline}" if figure.against else ""


def _spread(sample: Sample) -> str:
    return f"± {(sample.high - sample.low) / 2 / sample.median:.0%}" if sample.median else ""


def compared(figure: Figure) -> str:
    if figure.compared is None:
        return ""
    middle, half = figure.compared.median, (figure.compared.high - figure.compared.low) / 2
    if figure.kind == "difference":
        return f"{middle:+.1f} ± {half:.1f} {figure.unit}"
    return f"× {middle:.3g} ± {half:.2g}"


def _verdict(figure: Figure) -> str:
    return f"[{_COLOURS[figure.verdict]}]{figure.verdict}[/]" if figure.demanded else ""


def must(figure: Figure) -> str:
    return "" if figure.demanded is None else _bound(figure, figure.demanded.limit)


def aim(figure: Figure) -> str:
    return "" if figure.demanded is None or figure.demanded.aim is None else _bound(figure, figure.demanded.aim)


def _bound(figure: Figure, limit: float) -> str:
    assert figure.demanded is not None
    sign = "≥" if figure.demanded.bound == "least" else "≤"
    what = {"ours": f" {figure.unit}", "ratio": "", "difference": f" {figure.unit} more"}[figure.demanded.of]
    times = "× " if figure.demanded.of == "ratio" else ""
    return f"{sign} {times}{limit:g}{what}"


def write_json(run: Run, path: Path) -> None:
    path.write_text(json.dumps(as_json(run), indent=2, ensure_ascii=False) + "\n")


def as_json(run: Run) -> dict[str, Any]:
    where = run.disk.file_system
    return {
        "schema": SCHEMA,
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 1),
        "quick": run.quick,
        "full": run.full,
        "host": {
            "python": platform.python_version(),
            "optimized": runs_optimized(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "load": run.load,
            "tailrace": tailrace.__version__,
        },
        "place": {
            "file_system": where.name,
            "device": where.device,
            "real_disk": where.is_real_disk,
            "fdatasync_us": {"p50": round(run.disk.sync_p50, 1), "p99": round(run.disk.sync_p99, 1)},
        },
        "peers": [asdict(peer) for peer in run.peers],
        "figures": [_figure_as_json(figure) for figure in run.figures],
        "failures": [{"measure": measure, "error": error} for measure, error in run.failures.items()],
    }


def _figure_as_json(figure: Figure) -> dict[str, Any]:
    fields = asdict(figure)
    kind = fields.pop("kind")
    if fields["compared"] is not None:
        fields["compared"] = {"kind": kind, **fields["compared"]}
    return {**fields, "verdict": figure.verdict}
