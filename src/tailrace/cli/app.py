"""Puts the command line together: the table of verbs, each a module in a folder beside this one.

A verb imports what it works with only when it runs, so that `--help`, and completion, come at once.
"""

from importlib import import_module
from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli.common.help import VerbCommand, VerbGroup

# The module of each verb, in the order of --help.
_MODULES = {
    "serve": "serve.command",
    "topic": "topic.commands",
    "produce": "produce.command",
    "tail": "tail.command",
    "group": "group.commands",
    "queue": "queue.commands",
    "transaction": "transaction.commands",
    "lag": "lag.command",
    "alert": "alert.commands",
    "monitor": "monitor.command",
    "gateway": "gateway.command",
    "config": "config.commands",
    "quota": "quota.commands",
    "run": "pipelines.run",
    "replay": "pipelines.replay",
    "log": "log.commands",
    "backup": "backup.commands",
    "doctor": "doctor.command",
}
VERBS = tuple(_MODULES)


def app_of(verbs: tuple[str, ...] = VERBS) -> typer.Typer:
    """The command with these verbs: a module has a group of commands, `app`, or a function of its own name."""
    app = typer.Typer(
        name="tailrace",
        cls=VerbGroup,
        help="A log-based message broker that speaks Kafka's protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        module = import_module(f"tailrace.cli.{_MODULES[verb]}")
        if (group := getattr(module, "app", None)) is not None:
            for command in group.registered_commands:
                command.cls = VerbCommand
            app.add_typer(group, name=verb, cls=VerbGroup)
        else:
            app.command(verb, cls=VerbCommand)(getattr(module, verb))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tailrace {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
) -> None:
    pass


def wanted_verbs(arguments: list[str]) -> tuple[str, ...]:
    """The one that is asked for, so that no other is loaded; all of them for --help, completion and mistakes."""
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    return (first,) if first in VERBS else VERBS
