"""Entry point of the `tailrace` command.

Importing typer takes a fifth of the time that a broker needs to start, so plain options of `tailrace serve` are parsed
without it (`serve/broker`); every other command line goes to `app`. An error ends the process with a message and an
exit code of `output.ExitCode`; --debug shows the stack trace.
"""

import sys

from tailrace.cli.common import output
from tailrace.cli.common.output import ExitCode, Failure


def main() -> None:
    try:
        _run(sys.argv[1:])
    except Failure as failure:
        _end(str(failure), failure.code)
    except Exception as error:  # noqa: BLE001 - the last one to catch it: a stack trace helps no user
        _end(_in_words(error), ExitCode.FAILED)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from tailrace.cli.serve.broker import plain_options, run_broker

        options = plain_options(arguments[1:])
        if options is not None:
            run_broker(**options)
            return
    from tailrace.cli.app import app_of, wanted_verbs

    app_of(wanted_verbs(arguments))(prog_name="tailrace")


def _end(message: str, code: ExitCode) -> None:
    if _wants_stack_trace():
        raise  # called while the error is handled
    output.warn(message)
    sys.exit(code)


def _wants_stack_trace() -> bool:
    """Whether --debug stands before the verb, as in `tailrace --debug log verify`: after it, it may be an argument."""
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
