"""`tailrace lag`: how far groups are behind, in messages and in time, and when they will lose messages."""

import gc
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.monitor.figures.report import LagReport

_WATCH_SECONDS = 2.0
COLLECTED_AFTER = 200_000  # objects: a report of 100,000 rows is no garbage, and looking through it takes a while

Group = Annotated[str | None, typer.Argument(metavar="[GROUP]", autocompletion=connection.complete_groups)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Only this one. May be repeated.", autocompletion=connection.complete_topics
    ),
]
Sample = Annotated[
    str, typer.Option("--sample", metavar="TIME", help="Between two samples, where no monitor publishes.")
]


def lag(
    group: Group = None,
    topics: Topics = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until ctrl-C.")] = False,
    sample: Sample = "2s",
    losses: Annotated[bool, typer.Option("--losses", help="Messages that groups have lost, and why.")] = False,
    since: Annotated[str | None, typer.Option("--since", metavar="WHEN", help="Only losses since then.")] = None,
    buffers: Annotated[
        bool, typer.Option("--buffers", help="For how many hours of messages there is room, by topic and disk.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show how far groups are behind, when they will lose messages, and what they have lost.

    \b
    tailrace lag                                all groups, worst first
    tailrace lag billing                        one group, by partition
    tailrace lag --watch                        until ctrl-C
    tailrace lag billing --losses --since -1d   what it has lost since yesterday
    tailrace lag --buffers --sample 30s         how long topics and disks last
    tailrace lag --json | jq '.groups[] | select(.loss_low_seconds < 3600)'

    \b
    MESSAGES  what is still to be read; an upper bound in compacted topics
    BEHIND    how long the first unread message has been waiting
    STATE     ok, slow (the lag grows), stalled (members that do not move on),
              stopped (no members), rewound
    OUTLOOK   when the group has caught up, or loses messages, and by which rule

    Figures are those of the broker's monitor, or of two samples where there is none. -X takes the properties that
    `tailrace.client` knows: security.protocol, ssl.*, sasl.*.
    """
    from tailrace.cli.lag.source import require_group, view_of

    gc.set_threshold(COLLECTED_AFTER)
    if losses + buffers + watch > 1:
        raise Failure("--losses, --buffers and --watch exclude each other", ExitCode.USAGE)
    if since is not None and not losses:
        raise Failure("--since needs --losses", ExitCode.USAGE)
    since_ms = _milliseconds(since) if since is not None else 0
    seconds = _seconds(sample)
    with view_of(bootstrap, client_config) as view:
        if buffers:
            from tailrace.cli.lag.buffers import show_buffers

            show_buffers(view, topics or (), seconds, as_json=as_json)
            return
        if losses:
            from tailrace.cli.lag.losses import show_losses

            show_losses(view, group, topics or (), since_ms, bootstrap, as_json=as_json)
            return
        reports = view.lag(group, topics or (), seconds)
        first = next(reports)
        require_group(group, group in first.group_names, bootstrap)
        if watch:
            _watch(first, reports, group, as_json=as_json)
        else:
            _show(first, group, as_json=as_json)


def _show(report: "LagReport", group: str | None, *, as_json: bool) -> None:
    from tailrace.cli.lag.table import table

    if as_json:
        print(json.dumps(report.as_json()))
        return
    if not any(report.rows()):
        print("No offsets are committed." if group is None else f"{group} has committed no offsets.")
        return
    console = output.console(markup=False)
    drawn, notes = table(report, group, console.width)
    output.draw(drawn, console)
    for note in notes:
        print(note)


def _watch(first: "LagReport", reports: "Iterator[LagReport]", group: str | None, *, as_json: bool) -> None:
    from itertools import chain
    from time import sleep

    from rich.console import Group as Lines
    from rich.live import Live
    from rich.text import Text

    from tailrace.cli.common.broken_pipe import ending_with_the_reader
    from tailrace.cli.lag.table import table
    from tailrace.monitor.figures.report import MONITOR

    console = output.console(markup=False)
    with ending_with_the_reader():
        if as_json or not console.is_terminal:
            for report in chain([first], reports):
                _show(report, group, as_json=as_json)
                sleep(_WATCH_SECONDS if report.rates == MONITOR else 0.0)
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            for report in chain([first], reports):
                room = max(1, console.height - 5)
                drawn, notes = table(report, group, console.width, room)
                clock = datetime.fromtimestamp(report.at / 1000).strftime("%H:%M:%S")
                head = Text(f"{clock}  rates: {report.rates}  (ctrl-C ends)", style="dim")
                live.update(Lines(head, drawn, *map(Text, notes)), refresh=True)
                sleep(_WATCH_SECONDS if report.rates == MONITOR else 0.0)


def _milliseconds(since: str) -> int:
    from tailrace.util import times

    try:
        return times.milliseconds(times.parse(since, datetime.now().astimezone()))
    except times.NoTime as error:
        raise Failure(f"--since: {error}", ExitCode.USAGE) from None


def _seconds(sample: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", sample.strip())
    seconds = float(found[1]) * {"ms": 0.001, "s": 1, "m": 60}[found[2]] if found else 0.0
    if not 0.1 <= seconds <= 3600:
        raise Failure(f"--sample takes a time from 100ms to 60m, such as 2s, not {sample!r}", ExitCode.USAGE)
    return seconds
