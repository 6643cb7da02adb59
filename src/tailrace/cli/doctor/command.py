"""`tailrace doctor`: checks this machine and its broker, and says what to change."""

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import output
from tailrace.cli.common.connection import DEFAULT
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.doctor.check import Check

_STYLES = {"ok": "green", "warning": "bold yellow", "problem": "bold red"}
_STATE_WIDTH, _NAME_WIDTH = 9, 13


def doctor(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The broker's data directory.")] = Path("./tailrace-data"),
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "-b", "--bootstrap", metavar="HOST:PORT", envvar="TAILRACE_BOOTSTRAP", help=f"Its broker. [{DEFAULT}]"
        ),
    ] = None,
    metrics: Annotated[str, typer.Option(metavar="HOST:PORT", help="Its pages.")] = "127.0.0.1:9464",
    as_json: AsJson = False,
) -> None:
    """Look at the disk, the limits, the clock, what is installed, and the broker if one runs; say what to change.

    \b
    tailrace doctor
    tailrace doctor --data /var/lib/tailrace -b 127.0.0.1:9092

    It takes some seconds, and leaves nothing behind. Ends with 0 if there is no problem (warnings do not count), with 1
    if there is one, and with 3 if the broker that was named does not answer.
    """
    from tailrace.cli.doctor.broker import broker_checks
    from tailrace.cli.doctor.disk import disk_checks
    from tailrace.cli.doctor.machine import machine_checks

    host, port = _address(bootstrap or DEFAULT, "--bootstrap")
    pages = _address(metrics, "--metrics")
    show = _Shown(as_json)
    for check in disk_checks(data):
        show.add(check)
    for check in machine_checks():
        show.add(check)
    for check in broker_checks(host, port, pages, is_wanted=bootstrap is not None):
        show.add(check)
    show.end()
    raise typer.Exit(_exit_code(show.checks, is_wanted=bootstrap is not None))


def _exit_code(checks: "list[Check]", *, is_wanted: bool) -> ExitCode:
    problems = [check.name for check in checks if check.state == "problem"]
    if is_wanted and problems == ["broker"]:
        return ExitCode.NOT_REACHABLE
    return ExitCode.FAILED if problems else ExitCode.DONE


def _address(text: str, option: str) -> tuple[str, int]:
    """Returns the address of the first broker in the list."""
    host, separator, port = text.partition(",")[0].rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise Failure(f"{option} takes HOST:PORT, not {text!r}", ExitCode.USAGE)
    return host.strip("[]") or "127.0.0.1", int(port)


class _Shown:
    """Each check as soon as it is known; or all of them at the end, for programs."""

    def __init__(self, as_json: bool) -> None:
        self.checks: list[Check] = []
        self._as_json = as_json
        self._console = output.console(markup=False)
        self._width = self._console.width if sys.stdout.isatty() else 0

    def add(self, check: "Check") -> None:
        self.checks.append(check)
        if not self._as_json:
            self._print(check)

    def _print(self, check: "Check") -> None:
        from rich.text import Text

        for number, line in enumerate(self._lines(check.text)):
            head = f"{check.state:<{_STATE_WIDTH}}{check.name:<{_NAME_WIDTH}}" if not number else self._indent
            styled = Text(head + line)
            if not number:
                styled.stylize(_STYLES[check.state], 0, len(check.state))
            self._console.print(styled, soft_wrap=True)
        for number, line in enumerate(self._lines(check.advice, 2)):
            self._console.print(f"{self._indent}{'  ' if number else '→ '}{line}", soft_wrap=True)

    @property
    def _indent(self) -> str:
        return " " * (_STATE_WIDTH + _NAME_WIDTH)

    def _lines(self, text: str, more: int = 0) -> list[str]:
        """On a terminal, as wide as what is left of it."""
        room = self._width - len(self._indent) - more
        return textwrap.wrap(text, max(20, room), break_on_hyphens=False) if self._width else [text] if text else []

    def end(self) -> None:
        problems = sum(check.state == "problem" for check in self.checks)
        warnings = sum(check.state == "warning" for check in self.checks)
        if self._as_json:
            checks = [check.as_json() for check in self.checks]
            print(json.dumps({"checks": checks, "problems": problems, "warnings": warnings}, indent=2))
            return
        print(f"\n{output.plural(problems, 'problem')}, {output.plural(warnings, 'warning')}")
