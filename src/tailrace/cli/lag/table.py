"""The table of `tailrace lag`: worst first. All groups with a line for each topic, or one group with its partitions."""

from typing import TYPE_CHECKING, NamedTuple

from tailrace.cli.common import output
from tailrace.cli.lag.words import outlook, roughly

if TYPE_CHECKING:
    from rich.table import Table

    from tailrace.facts.lag import LagRow
    from tailrace.monitor.figures.report import LagReport

LINES_MAX = 50
NARROW, NAME_WIDTH = 120, 14  # a terminal, and names in it
_STYLES = {"stopped": "bold red", "stalled": "bold red", "slow": "yellow", "rewound": "yellow", "ok": "green"}


Badness = tuple[bool, float, float, int]


class Line(NamedTuple):
    """One line: a partition, or the partitions of one group in one topic, of which `worst` is shown."""

    group: str
    topic: str
    records: int
    worst: "LagRow"
    badness: Badness


def lines(report: "LagReport", group: str | None) -> list[Line]:
    by_topic: dict[tuple[str, str], Line] = {}
    found = []
    for of_group, row in report.rows():
        badness = _badness(row, report.at)
        if group is not None:
            found.append(Line(group, row.topic, row.lag_records, row, badness))
            continue
        key = of_group.group, row.topic
        line = by_topic.get(key)
        if line is None:
            by_topic[key] = Line(*key, row.lag_records, row, badness)
        else:
            worst = (row, badness) if badness < line.badness else (line.worst, line.badness)
            by_topic[key] = Line(*key, line.records + row.lag_records, *worst)
    return sorted(
        [*found, *by_topic.values()],
        key=lambda line: (line.badness, line.group, line.topic, line.worst.partition),
    )


def table(report: "LagReport", group: str | None, width: int, lines_max: int = LINES_MAX) -> "tuple[Table, list[str]]":
    """The table for a terminal of this width, and what is to be said below it."""
    from rich.text import Text

    found = lines(report, group)
    names = ("TOPIC", "PARTITION") if group else ("GROUP", "TOPIC")
    texts = ("TOPIC", "STATE", "OUTLOOK")
    drawn = output.table(*names, "MESSAGES", "BEHIND", "STATE", "OUTLOOK", texts=texts)
    for column in drawn.columns:
        column.no_wrap = column.header != "OUTLOOK"
        if column.header in ("GROUP", "TOPIC") and width < NARROW:
            column.overflow, column.max_width = "ellipsis", NAME_WIDTH
    for line in found[:lines_max]:
        row = line.worst
        state = Text(row.state, style=_STYLES.get(row.state, "")) if row.lag_records else Text("ok", style="green")
        group_or_topic = line.topic if group else output.short(line.group.encode(), 60)
        place = str(row.partition) if group else line.topic
        behind = roughly(row.lag_seconds(report.at))
        drawn.add_row(group_or_topic, place, output.number(line.records), behind, state, outlook(row, report.at))
    return drawn, _notes(report, found, lines_max)


def _notes(report: "LagReport", found: list[Line], lines_max: int) -> list[str]:
    notes = []
    if len(found) > lines_max:
        notes.append(f"… and {output.plural(len(found) - lines_max, 'more line')}; --json has all")
    if any(line.worst.estimate for line in found):
        notes.append("Bytes and times to a loss are estimates: this Kafka does not publish its segments.")
    return notes


def _badness(row: "LagRow", now_ms: int) -> Badness:
    """Returns the sort key of a row, the worst first: lost, about to lose, longest behind."""
    loss, behind = row.loss_low_seconds(now_ms), row.lag_seconds(now_ms)
    return not row.unread_lost, loss if loss is not None else float("inf"), -(behind or 0.0), -row.lag_records
