"""The results for people, as one table, and for machines, as the JSON that `bench/__init__.py` documents."""

import os
import platform
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

import tailrace
from bench.harness import Demand, Figure, Sample
from bench.place import FileSystem

SCHEMA = 1
_COLOURS = {"ok": "green", "missed": "bold red"}


@dataclass(frozen=True, slots=True)
class Run:
    started: datetime
    seconds: float
    quick: bool
    load: float
    path: str
    file_system: FileSystem
    figures: list[Figure]
    failures: dict[str, str]


def show(run: Run, console: Console) -> None:
    table = Table()
    for heading in ("measure", "ours", "against", "ratio", "demanded", "verdict"):
        table.add_column(heading, justify="left" if heading in ("measure", "against", "verdict") else "right")
    for figure in run.figures:
        against = f"{_number(figure.against.median)} {figure.baseline}" if figure.against else ""
        table.add_row(
            figure.title,
            f"{_number(figure.ours.median)} {figure.unit} {_spread(figure.ours)}",
            against,
            _compared(figure),
            _demanded(figure.demanded, figure.unit),
            _verdict(figure),
        )
    console.print(table)
    console.print(_caption(run))
    for figure in run.figures:
        if figure.note:
            console.print(f"[dim]{figure.title}: {figure.note}[/]")
    for measure, error in run.failures.items():
        console.print(f"[bold red]{measure} crashed:[/] {error}", markup=True)


def _caption(run: Run) -> str:
    disk = f"{run.file_system.name} on {run.file_system.device}"
    if not run.file_system.is_real_disk:
        disk += ", which is NO DISK: what is said of syncing means nothing"
    length = "a quick run" if run.quick else "a full run"
    return (
        f"{length} of {run.seconds:.0f} s in {run.path} ({disk}), with a load of {run.load:.1f} on {os.cpu_count()} "
        "CPUs at its start; ± is half the distance of the quartiles"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _spread(sample: Sample) -> str:
    return f"± {(sample.high - sample.low) / 2 / sample.median:.0%}" if sample.median else ""


def _compared(figure: Figure) -> str:
    if figure.compared is None:
        return ""
    middle, half = figure.compared.median, (figure.compared.high - figure.compared.low) / 2
    if figure.kind == "difference":
        return f"{middle:+.1f} ± {half:.1f} {figure.unit}"
    return f"× {middle:.3g} ± {half:.2g}"


def _verdict(figure: Figure) -> str:
    return f"[{_COLOURS[figure.verdict]}]{figure.verdict}[/]" if figure.demanded else ""


def _demanded(demanded: Demand | None, unit: str) -> str:
    if demanded is None:
        return ""
    sign = "≥" if demanded.bound == "least" else "≤"
    what = {"ours": f" {unit}", "ratio": "", "difference": f" {unit} more"}[demanded.of]
    times = "× " if demanded.of == "ratio" else ""
    return f"{sign} {times}{demanded.limit:g}{what}"


def as_json(run: Run) -> dict[str, Any]:
    disk = run.file_system
    return {
        "schema": SCHEMA,
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 1),
        "quick": run.quick,
        "host": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "load": run.load,
            "tailrace": tailrace.__version__,
        },
        "place": {
            "path": run.path,
            "file_system": disk.name,
            "device": disk.device,
            "real_disk": disk.is_real_disk,
        },
        "figures": [_figure_as_json(figure) for figure in run.figures],
        "failures": [{"measure": measure, "error": error} for measure, error in run.failures.items()],
    }


def _figure_as_json(figure: Figure) -> dict[str, Any]:
    fields = asdict(figure)
    kind = fields.pop("kind")
    if fields["compared"] is not None:
        fields["compared"] = {"kind": kind, **fields["compared"]}
    return {**fields, "verdict": figure.verdict}
