"""OPERATING.md and MONITORING.md list all flags, exit codes and metrics, and the file means what the page says."""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from tailrace.cli.app import app_of
from tailrace.cli.common.output import ExitCode
from tailrace.monitor.exposition import FAMILIES
from tailrace.server.settings import read_settings
from tailrace.testing import Broker

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "OPERATING.md").read_text()
MONITORING = (DOCS / "MONITORING.md").read_text()


def test_every_flag_of_serve_is_there_and_no_other() -> None:
    said = CliRunner().invoke(app_of(), ["serve", "--help"], env={"COLUMNS": "200"}).stdout
    flags = set(re.findall(r"^ +(?:-h, )?(--[\w-]+)", said, re.MULTILINE)) - {"--help"}
    assert set(re.findall(r"^\| `(--[\w-]+)", PAGE, re.MULTILINE)) == flags


def test_every_metric_is_there_and_no_other() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        metrics = set(re.findall(r"^# TYPE (\w+)", broker.node.metrics.exposition(), re.MULTILINE))
    metrics |= {name for name in FAMILIES if name.startswith("tailrace_")} | {"tailrace_child_starts_total"}
    tables = MONITORING.partition("## All metrics")[2]
    rows = "\n".join(line.split("|")[1] for line in tables.splitlines() if line.startswith("| `"))
    named = re.findall(r"`(tailrace_\w+)`", rows)
    assert sorted(named) == sorted(metrics)


def test_every_metric_of_the_alerts_page_has_a_row_in_the_list() -> None:
    alerts, _, tables = MONITORING.partition("## All metrics")
    assert set(re.findall(r"`(tailrace_\w+)`", alerts)) <= set(re.findall(r"`(tailrace_\w+)`", tables))


def test_every_exit_code_is_there() -> None:
    table = PAGE.partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)] == list(ExitCode)


def test_the_file_and_the_flags_that_are_said_to_be_the_same_are(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(PAGE.partition("```toml\n")[2].partition("```")[0])
    command = PAGE.partition("```toml\n")[2].partition("$ tailrace serve ")[2].partition(" --check")[0]
    words = shlex.split(command.replace("\\\n", " "))
    given = list(zip(words[::2], words[1::2], strict=True))
    flags = read_settings(
        data=dict(given)["--data"],
        listen=[value for flag, value in given if flag == "--listen"],
        configs=[value for flag, value in given if flag == "--set"],
    )
    assert read_settings(config_file=str(file)) == flags
