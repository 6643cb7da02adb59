"""`tailrace alert`: lists alerts, silences them, and tests their delivery."""

import json
import re
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.lag.source import opened

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.facts.alerts import Alert

app = typer.Typer(no_args_is_help=True, help="Alerts of the monitor: list, silence, test.")

TARGETS = ("log", "webhook", "command")
TEST_S = 90.0  # a monitor looks once in tailrace.monitor.interval.ms
WIDE = 160  # of a terminal: a narrower one has no room for messages beside the rest
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SILENCE_S_MAX = 366 * 86400

Group = Annotated[str | None, typer.Argument(metavar="[GROUP]", autocompletion=connection.complete_groups)]


@app.command("list")
def list_alerts(
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that were resolved in the last days.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show the alerts that are raised."""
    from tailrace.monitor.alerts.alert_view import AlertView, shown

    with opened(AlertView, bootstrap, client_config) as view:
        alerts = view.alerts(all_of_them=all_of_them)
    if as_json:
        print(json.dumps({"alerts": [shown(*one) for one in alerts]}))
    elif not alerts:
        print("No alerts." if all_of_them else "No alerts are raised.")
    else:
        console = output.console(markup=False)
        (_draw_table if console.width >= WIDE else _draw_blocks)(alerts, console)


def _draw_blocks(alerts: "list[tuple[Alert, int | None]]", console: "Console") -> None:
    """Each alert by itself, with its message below."""
    from rich.padding import Padding

    for alert, silenced_until in alerts:
        subject = " on ".join(filter(None, (alert.group, alert.topic)))
        until = f", silenced until {output.minute(silenced_until)}" if silenced_until is not None else ""
        head = f"{alert.rule} {alert.state} since {output.minute(alert.since)}{until}{subject and f': {subject}'}"
        console.print(head, style="bold red" if alert.is_raised else "green")
        console.print(Padding(alert.message, (0, 0, 0, 2)))


def _draw_table(alerts: "list[tuple[Alert, int | None]]", console: "Console") -> None:
    headings = ("STATE", "SINCE", "GROUP", "TOPIC", "SILENCED UNTIL", "MESSAGE")
    drawn = output.table("RULE", *headings, texts=headings)
    for alert, silenced_until in alerts:
        until = output.time(silenced_until) if silenced_until is not None else "-"
        since = output.time(alert.since)
        drawn.add_row(alert.rule, alert.state, since, alert.group or "-", alert.topic or "-", until, alert.message)
    output.draw(drawn, console)


@app.command("test")
def try_delivery(
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="webhook, command or log. [all of them]")] = "",
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Have the monitor deliver a test alert, and show what became of it.

    Exits with 1 if a delivery failed, or no monitor has answered.
    """
    from tailrace.monitor.alerts.alert_view import AlertView

    if to and to not in TARGETS:
        raise Failure(f"--to takes one of {', '.join(TARGETS)}, not {to!r}", ExitCode.USAGE)
    with opened(AlertView, bootstrap, client_config) as view:
        outcomes = view.test(to, TEST_S)
    if outcomes is None:
        raise Failure(
            f"no monitor has delivered the test alert within {TEST_S:.0f} s: it may not be running\n"
            "  the broker starts one unless tailrace.monitor.enable=false; `tailrace monitor` runs one by itself"
        )
    for target, outcome in sorted(outcomes.items()):
        print(f"{target}: {outcome}")
    if any(outcome != "delivered" for outcome in outcomes.values()):
        raise Failure("not all alerts can be delivered")


@app.command("silence")
def silence(
    group: Group = None,
    rule: Annotated[str, typer.Option("--rule", metavar="RULE", help="Only this rule, such as lag_seconds.")] = "",
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=connection.complete_topics),
    ] = "",
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="For how long, such as 30m, 2h or 1d.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="End a silence of the same group, rule and topic.")] = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Raise alerts without delivering them, for a while.

    \b
    tailrace alert silence billing --for 2h                     a group
    tailrace alert silence --rule lag_seconds --for 1d       for all groups
    tailrace alert silence billing --topic orders --for 30m
    tailrace alert silence billing --remove

    An alert that is still raised when the silence ends is delivered then.
    """
    from tailrace.monitor.alerts.alert_view import RULES, AlertView

    if rule and rule not in RULES:
        raise Failure(f"--rule takes one of {', '.join(RULES)}, not {rule!r}", ExitCode.USAGE)
    if not (group or rule or topic):
        raise Failure("name what to silence: a group, --rule or --topic", ExitCode.USAGE)
    if remove and duration:
        raise Failure("--for and --remove exclude each other", ExitCode.USAGE)
    seconds = 0 if remove else _seconds(duration)
    what = _words(group or "", rule, topic)
    with opened(AlertView, bootstrap, client_config) as view:
        if not remove:
            until = view.silence(group or "", rule, topic, seconds * 1000)
            print(f"silenced until {output.time(until)}: {what}")
        elif view.remove_silence(group or "", rule, topic):
            print(f"no longer silenced: {what}")
        else:
            raise Failure(f"there is no silence of {what}", ExitCode.NOT_FOUND)


def _words(group: str, rule: str, topic: str) -> str:
    parts = [f"group {group}" if group else "all groups", f"rule {rule}" if rule else "", topic and f"topic {topic}"]
    return ", ".join(filter(None, parts))


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= SILENCE_S_MAX:
        raise Failure(f"--for takes a time of at most 366d, such as 30m, 2h or 1d, not {text!r}", ExitCode.USAGE)
    return seconds
