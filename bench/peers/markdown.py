"""The report of a run as a page of Markdown, with a picture for each part of it."""

from collections.abc import Sequence
from pathlib import Path

from bench.harness.measure import Figure
from bench.harness.report import Run, against, aim, caption, compared, must, ours, write_json
from bench.peers import plot

# By the first word of a figure's name; what stands nowhere comes last.
PARTS = {
    "Throughput": ("produce", "consume", "fan-out", "catch-up", "sync", "unsynced", "kept"),
    "Latency": ("ack", "half", "end-to-end", "crowd", "cold"),
    "Cost": ("cpu-in", "cpu-out", "memory", "start", "partitions"),
    "Other peers": ("other",),
}
_REST = "Further"
_BETTER = {"Throughput": "more is better", "Latency": "less is better", "Cost": "less is better"}
_HEADINGS = ("measure", "ours", "against", "ratio", "must", "aim", "verdict")


def write(run: Run, directory: Path) -> Path:
    """Writes JSON, pictures and the page itself; returns the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"peers-{run.started:%Y%m%d-%H%M%S}"
    write_json(run, directory / f"{stem}.json")
    pictures = {}
    for part, figures in by_part(run.figures).items():
        title = f"{part}: {_BETTER[part]}" if part in _BETTER else part
        if (picture := plot.ratios(title, figures)) is not None:
            pictures[part] = f"{stem}-{part.lower().replace(' ', '-')}.svg"
            (directory / pictures[part]).write_text(picture)
    page = directory / f"{stem}.md"
    page.write_text(as_page(run, pictures))
    return page


def by_part(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    parts: dict[str, list[Figure]] = {part: [] for part in (*PARTS, _REST)}
    for figure in figures:
        first = figure.name.partition("/")[0]
        parts[next((part for part, names in PARTS.items() if first in names), _REST)].append(figure)
    return {part: found for part, found in parts.items() if found}


def as_page(run: Run, pictures: dict[str, str]) -> str:
    lines = [f"# Side by side, {run.started:%Y-%m-%d %H:%M}", "", _sentence(caption(run)), "", _summary(run), ""]
    if run.peers:
        lines += ["## With whom", "", *_table(("peer", "version", "acknowledged means"), _peers(run)), ""]
    for part, figures in by_part(run.figures).items():
        lines += [f"## {part}", ""]
        if part in pictures:
            lines += [f"![ratios: {part}]({pictures[part]})", ""]
        lines += [*_table(_HEADINGS, [_cells(figure) for figure in figures]), ""]
        lines += [f"- {figure.title}: {figure.note}" for figure in figures if figure.note]
        lines.append("")
    if run.failures:
        lines += ["## Crashed", "", *(f"- {measure}: {error}" for measure, error in run.failures.items()), ""]
    return "\n".join(lines).rstrip() + "\n"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def _summary(run: Run) -> str:
    judged = [figure for figure in run.figures if figure.demanded is not None]
    if not judged:
        return "Nothing is demanded of what ran."
    missed = [figure for figure in judged if figure.verdict == "missed"]
    reached = sum(figure.verdict == "aim" for figure in judged)
    words = f"**Of {len(judged)} demands {len(judged) - len(missed)} are met, {reached} of them as well as aimed at.**"
    if missed:
        words += (
            " Missed: " + "; ".join(f"{figure.title} ({compared(figure)}, {must(figure)})" for figure in missed) + "."
        )
    return words


def _peers(run: Run) -> list[tuple[str, ...]]:
    return [
        (peer.name, peer.version if peer.missing is None else f"cannot be had here: {peer.missing}", peer.durability)
        for peer in run.peers
    ]


def _cells(figure: Figure) -> tuple[str, ...]:
    verdict = {"information": "", "missed": "**missed**"}.get(figure.verdict, figure.verdict)
    return figure.title, ours(figure), against(figure), compared(figure), must(figure), aim(figure), verdict


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
