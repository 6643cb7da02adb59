"""The dashboard and the rules under packaging/: of the monitor's metrics, and up to date."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tailrace.facts.alerts import AlertRule
from tailrace.monitor.exposition import FAMILIES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "SLOW_CONSUMERS.md"
DASHBOARD = ROOT / "packaging" / "grafana-dashboard.json"
RULES = ROOT / "packaging" / "prometheus-lag-rules.yml"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monitoring_files", ROOT / "scripts" / "monitoring_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def test_the_files_are_what_the_script_writes(script: ModuleType) -> None:
    assert DASHBOARD.read_text() == script.dashboard(), "run scripts/monitoring_files.py"
    assert RULES.read_text() == script.rules(), "run scripts/monitoring_files.py"


def test_every_name_in_the_dashboard_is_a_metric_of_the_monitor() -> None:
    board = json.loads(DASHBOARD.read_text())
    names = {name for text in texts(board) for name in re.findall(r"\b(?:tailrace|kafka)_\w+", text)}
    assert len(names) > 8
    assert names <= FAMILIES.keys()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


def test_the_rules_are_rules_of_prometheus(script: ModuleType) -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [rule.name for rule in script.ALERTS]
    assert all({"expr", "labels", "annotations"} <= rule.keys() for rule in group["rules"])


def test_the_first_loss_of_a_group_counts() -> None:
    """Its series begins with it, and `increase` needs a sample before."""
    for text in (RULES.read_text(), *texts(json.loads(DASHBOARD.read_text()))):
        assert "increase(tailrace_group_lost" not in text
    assert "offset 10m or 0 *" in RULES.read_text().replace(")", "")


def test_each_rule_of_ours_that_prometheus_can_see_is_there(script: ModuleType) -> None:
    names = {re.sub(r"(?<!^)([A-Z])", r"_\1", rule.name.removeprefix("Tailrace")).lower() for rule in script.ALERTS}
    assert set(AlertRule) - names == {AlertRule.HOLD_NEARLY_FULL}  # tailrace_backlog_state is of the broker
    assert names - set(AlertRule) == {"monitor_stale"}


def test_each_rule_is_explained_on_the_page() -> None:
    page = PAGE.read_text()
    for rule in AlertRule:
        assert f"`{rule}`" in page


@pytest.mark.parametrize("expression", ["tailrace_group_lags", 'tailrace_group_lag_records{grp="a"}'])
def test_names_and_labels_that_do_not_exist_are_refused(script: ModuleType, expression: str) -> None:
    with pytest.raises(SystemExit):
        script.checked(expression)
