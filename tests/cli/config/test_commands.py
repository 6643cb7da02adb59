"""`tailrace config`, run as a user runs it, against a broker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client.fakes import FakeBroker

Run = Callable[..., tuple[str, str]]
KEY = "log.retention.ms"
HOUR = "3600000"


@pytest.fixture(autouse=True)
def clean(run: Run) -> Any:
    yield
    run("config", "set", "--unset", KEY, "--unset", "max.connections")
    run("config", "set", "--broker", 1, "--unset", KEY)


def shown(run: Run, *arguments: object) -> dict[str, dict[str, Any]]:
    found = json.loads(run("config", "show", "--json", *arguments)[0])
    assert found["broker"] == 1
    return {row["name"]: row for row in found["configs"]}


def test_a_config_is_set_for_all_brokers_shown_and_taken_back(run: Run) -> None:
    before = shown(run, KEY)[KEY]["value"]
    changed = run("config", "set", "--set", f"{KEY}=1h", "--set", "max.connections=2000")[0].splitlines()
    assert changed[0] == "changed all brokers"
    assert f"→ {HOUR}" in changed[1]
    assert changed[2].endswith("→ 2000")
    row = shown(run)[KEY]
    assert (row["value"], row["source"], row["changes"]) == (HOUR, "all brokers, at run time", "at run time")
    assert f"{HOUR} (1 h)" in run("config", "show")[0]
    run("config", "set", "--unset", KEY)
    assert KEY not in shown(run)
    assert shown(run, KEY)[KEY]["value"] == before


def test_the_value_of_one_broker_counts_more_than_that_of_all(run: Run) -> None:
    assert run("config", "set", "--broker", 1, "--set", f"{KEY}=2h")[0].startswith("changed broker 1\n")
    said, warned = run("config", "set", "--set", f"{KEY}=1h")
    assert "7200000 → 7200000" in said
    assert "--broker ID" in warned
    assert shown(run)[KEY]["source"] == "broker, at run time"
    change = json.loads(run("config", "set", "--broker", 1, "--unset", KEY, "--json")[0])
    assert change == {
        "changed": "broker 1",
        "dry_run": False,
        "changes": [{"name": KEY, "before": "7200000", "after": HOUR}],
    }


def test_a_dry_run_checks_and_changes_nothing(run: Run) -> None:
    assert run("config", "set", "--set", "max.connections=2000", "--dry-run")[0].startswith("would change all brokers")
    assert "max.connections" not in shown(run)
    run("config", "set", "--set", "max.connections=many", "--dry-run", code=5)


def test_the_list_tells_what_came_from_the_file_and_what_can_change_at_run_time(run: Run) -> None:
    rows = shown(run, "--all")
    assert (rows["log.dirs"]["source"], rows["log.dirs"]["changes"]) == ("broker's file", "at the start")
    assert (rows["max.connections"]["source"], rows["max.connections"]["changes"]) == ("default", "at run time")
    assert len(rows) > 50


def test_changes_that_cannot_be_made_are_refused_with_the_reason(run: Run) -> None:
    assert "num.partitions" in run("config", "set", "--set", "num.partitions=3", code=5)[1]
    assert "did you mean log.retention.ms" in run("config", "set", "--set", "log.retentoin.ms=1", code=4)[1]
    assert "did you mean log.retention.ms" in run("config", "show", "log.retentoin.ms", code=4)[1]
    assert "no broker 77; its brokers are 1" in run("config", "show", "--broker", 77, code=4)[1]
    run("config", "set", code=2)
    run("config", "set", "--set", f"{KEY}=1", "--unset", KEY, code=2)


def test_a_config_that_was_set_survives_a_restart(own_broker: Any, run: Run, tmp_path: Path) -> None:
    with own_broker(tmp_path / "data") as (address, process):
        run("config", "set", "--set", f"{KEY}=1h", "-b", address)
        process.restart()
        (row,) = json.loads(run("config", "show", KEY, "--json", "-b", address)[0])["configs"]
    assert row["value"] == HOUR


@pytest.mark.parametrize(
    ("verb", "key", "api"), [("config", 32, "DescribeConfigs"), ("quota", 48, "DescribeClientQuotas")]
)
def test_an_api_that_the_broker_lacks_is_named(run: Run, verb: str, key: int, api: str) -> None:
    fake = FakeBroker()
    try:
        del fake.versions[key]
        fake.versions[3] = (1, 8)  # to later versions of Metadata, librdkafka adds bytes that the fake does not take
        warned = run(verb, "show", "-b", fake.bootstrap, code=1)[1]
    finally:
        fake.close()
    assert f"has no {api}" in warned
