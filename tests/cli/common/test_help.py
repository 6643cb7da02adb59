"""Help and usage, as a new user reads them in a terminal of 80 columns."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.main import get_command

from tailrace.cli.app import app_of

Run = Callable[..., tuple[str, str]]
WIDTH = 80


def contexts(command: Any, name: str, parent: Any = None) -> Iterator[Any]:
    """Of a command and all below it."""
    context = command.make_context(name, [], parent, resilient_parsing=True, terminal_width=WIDTH)
    yield context
    for name, below in getattr(command, "commands", {}).items():
        yield from contexts(below, name, context)


@pytest.fixture(scope="module")
def every_context() -> list[Any]:
    return list(contexts(get_command(app_of()), "tailrace"))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("describe", "`tailrace topic show TOPIC` or `tailrace group show GROUP`"),
        ("consume", "`tailrace tail TOPIC`"),
        ("console-consumer", "`tailrace tail TOPIC`"),
        ("reset", "`tailrace group reset GROUP`"),
        ("version", "`tailrace --version`"),
        ("help", "`tailrace --help`"),
        ("topic describe orders", "`tailrace topic show`"),
        ("group help", "`tailrace group --help`"),
    ],
)
def test_words_of_other_tools_lead_to_the_verb(run: Run, words: str, meant: str) -> None:
    said, warned = run(*words.split(), code=2, environment={"COLUMNS": "80"})
    assert (said, warned.splitlines()[-1].partition(" Did you mean ")[2]) == ("", f"{meant}?")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("serve --port 9093", "`--listen HOST:PORT`"),
        ("tail --topic orders", "`TOPIC`"),
        ("tail orders --from-beginning", "`--from earliest`"),
        ("config set num.partitions=3", "`--set num.partitions=3`"),
        ("topic alter orders retention.ms=1h", "`--set retention.ms=1h`"),
    ],
)
def test_options_of_other_tools_and_settings_without_an_option_lead_to_the_option(
    run: Run, words: str, meant: str
) -> None:
    said, warned = run(*words.split(), code=2, environment={"COLUMNS": "80"})
    assert (said, warned.splitlines()[-1].partition(" Did you mean ")[2]) == ("", f"{meant}?")


def test_an_argument_too_many_is_named(run: Run) -> None:
    assert run("topic", "show", "orders", "payments", code=2)[1].endswith("Error: Unexpected argument: payments\n")


def test_usage_shows_which_arguments_may_be_repeated(run: Run) -> None:
    for verb, usage in (
        ("topic create", "[OPTIONS] TOPIC..."),
        ("topic show", "[OPTIONS] TOPIC"),
        ("tail", "[OPTIONS] TOPIC..."),
        ("group delete", "[OPTIONS] GROUP..."),
        ("produce", "[OPTIONS] TOPIC [FILE|-]"),
        ("run", "[OPTIONS] FILE.py [NAME...]"),
    ):
        assert run(*verb.split(), "--help")[0].splitlines()[0] == f"Usage: tailrace {verb} {usage}"


def test_no_argument_is_marked_as_repeatable_twice(every_context: list[Any]) -> None:
    assert [usage for context in every_context if "......" in (usage := context.get_usage())] == []


def test_the_list_of_verbs_has_whole_sentences_in_80_columns(run: Run) -> None:
    for group in ((), ("topic",), ("log",)):
        said, _ = run(*group, "--help", environment={"COLUMNS": "80"})
        assert "..." not in said.partition("Commands:")[2]


def test_no_line_of_help_is_wider_than_80_columns(every_context: list[Any]) -> None:
    wide = [line for context in every_context for line in context.get_help().splitlines() if len(line) > WIDTH]
    assert wide == []


def test_options_that_may_be_repeated_say_so(every_context: list[Any]) -> None:
    for context in every_context:
        for param in context.command.params:
            if getattr(param, "multiple", False):
                said = param.help.lower()
                assert "may be repeated" in said or "one for each" in said, (context.command_path, param.name)
