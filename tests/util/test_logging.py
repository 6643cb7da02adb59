"""Log lines: for people with a clock, for machines as JSON, and one line each."""

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from tailrace.util.logging import ForMachines, ForPeople, set_up


def a_record(message: str = "%s has gone", level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("tailrace.server.node", level, "node.py", 1, message, ("somebody",), None)
    record.created = 1_800_000_000.123
    record.__dict__.update(fields)
    return record


def failed() -> logging.LogRecord:
    try:
        raise ValueError("no")
    except ValueError:
        return a_record(exc_info=sys.exc_info())


def test_for_people() -> None:
    line = ForPeople(colours=False).format(a_record())
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.123 warning somebody has gone", line)


def test_colours_only_for_what_matters() -> None:
    assert ForPeople(colours=True).format(a_record()).startswith("\033[33m")
    assert ForPeople(colours=True).format(a_record()).endswith("\033[0m")
    assert "\033" not in ForPeople(colours=True).format(a_record(level=logging.INFO))


def test_for_machines() -> None:
    assert json.loads(ForMachines().format(a_record())) == {
        "time": "2027-01-15T08:00:00.123+00:00",
        "level": "warning",
        "logger": "tailrace.server.node",
        "message": "somebody has gone",
    }


def test_a_line_is_a_line_whatever_a_client_has_sent() -> None:
    line = ForMachines().format(a_record("%s\n{\x1b[31m"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert json.loads(line)["message"] == "somebody\n{\x1b[31m"


def test_exceptions_are_told() -> None:
    assert "ValueError: no" in ForPeople(colours=False).format(failed())
    assert "ValueError: no" in json.loads(ForMachines().format(failed()))["exception"]


@pytest.fixture
def our_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tailrace")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def test_set_up_once_or_twice_says_everything_once(
    our_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(colours=False)
    set_up(colours=False)
    logging.getLogger("tailrace.server.node").info("hello")
    logging.getLogger("tailrace.server.node").debug("not this")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "hello"
