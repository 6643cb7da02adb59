"""Writes docs/CLI.md, the reference of the command line, from the help of every verb.

python scripts/cli_page.py            writes docs/CLI.md
python scripts/cli_page.py --check    ends with 1 where the page is not what would be written
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from tailrace.cli.app import app_of
from tailrace.cli.common.output import ExitCode

PAGE = Path(__file__).parents[1] / "docs" / "CLI.md"
WIDTH = 100
INTRODUCTION = """\
# The command line

<!-- Made from the code by scripts/cli_page.py: change the help of the verb, and run that. -->

Every verb and its options, as `tailrace VERB --help` prints them. `serve` runs a broker. `topic`, `produce`, `tail`,
`group`, `transaction`, `config`, `quota`, `run` and `replay` talk to a broker, to this one or to any Kafka (`-b
HOST:PORT`, or the environment variable `TAILRACE_BOOTSTRAP`). `log` and `backup` work on a data directory and need no
broker. `doctor` examines the machine.

Data goes to standard output, and messages to standard error. A verb with `--json` prints JSON for programs. The exit
codes are the same for all verbs; [OPERATING](OPERATING.md#exit-codes) explains them:
"""
EXIT_CODES = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed, or damage was found",
    ExitCode.USAGE: "usage error",
    ExitCode.NOT_REACHABLE: "no broker answers",
    ExitCode.NOT_FOUND: "no such topic, file or partition",
    ExitCode.REFUSED: "refused by the broker, or not safe",
}


def page() -> str:
    codes = [f"- {int(code)}: {EXIT_CODES[code]}" for code in ExitCode]
    whole = "## All verbs", *help_of(root := context_of(get_command(app_of()), "tailrace"))
    return "\n".join([INTRODUCTION, *codes, "", *whole, *sections(root, "##")]) + "\n"


def context_of(command: Any, name: str, parent: Any = None) -> Any:  # typer's own copy of click, which is private
    return command.make_context(name, [], parent, resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH)


def sections(context: Any, heading: str) -> Iterator[str]:
    """The help of each command below `context`. An alias of a command has no section."""
    for name, command in getattr(context.command, "commands", {}).items():
        if command.hidden:
            continue
        below = context_of(command, name, context)
        yield from ("", f"{heading} {below.command_path}", *help_of(below))
        yield from sections(below, heading + "#")


def help_of(context: Any) -> list[str]:
    return ["```text", context.get_help().rstrip(), "```"]


def main(arguments: Sequence[str]) -> int:
    if "--check" not in arguments:
        PAGE.write_text(page())
    elif not PAGE.exists() or PAGE.read_text() != page():
        print("docs/CLI.md is not what the code says: run scripts/cli_page.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
