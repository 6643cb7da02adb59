"""The `tailrace` command: its verbs, and how it ends.

Each verb is a module beside this one. A verb imports what it works with only when it runs, so that `--help`, and
completion, come at once. Whatever goes wrong is said in words, with an exit code of `output.ExitCode`; a stack trace
is shown only to those who ask with --debug.
"""

import sys
from importlib import import_module
from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli import output
from tailrace.cli.output import ExitCode, Failure

# Each a module beside this one, in the order of --help.
VERBS = ("serve", "topic", "produce", "tail", "group", "run", "replay", "log", "backup", "doctor")


def app_of(verbs: tuple[str, ...] = VERBS) -> typer.Typer:
    """The command with these verbs: a module has a group of commands, `app`, or a function of its own name."""
    app = typer.Typer(
        name="tailrace",
        help="A log-based message broker that speaks Kafka's protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        module = import_module(f"tailrace.cli.{verb}")
        if (group := getattr(module, "app", None)) is not None:
            app.add_typer(group, name=verb)
        else:
            app.command(verb)(getattr(module, verb))
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


def main() -> None:
    try:
        app_of(_wanted_verbs(sys.argv[1:]))(prog_name="tailrace")
    except Failure as failure:
        _end(str(failure), failure.code)
    except Exception as error:  # noqa: BLE001 - the last one to catch it: a stack trace helps no user
        _end(_in_words(error), ExitCode.FAILED)


def _wanted_verbs(arguments: list[str]) -> tuple[str, ...]:
    """The one that is asked for, so that no other is loaded; all of them for --help, completion and mistakes."""
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    return (first,) if first in VERBS else VERBS


def _end(message: str, code: ExitCode) -> None:
    if _wants_stack_trace():
        raise  # called while the error is handled
    output.warn(message)
    sys.exit(code)


def _wants_stack_trace() -> bool:
    """Said before the verb, as in `tailrace --debug log verify`: behind it, the word may belong to somebody else."""
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            return False
        if argument == "--debug":
            return True
    return False


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error} (this is a bug; `tailrace --debug …` shows where)"


if __name__ == "__main__":
    main()
