import re
from pathlib import Path

import yaml

from tailrace.testing import Broker

RULES = Path(__file__).parents[2] / "packaging" / "prometheus-rules.yml"
PAGE = Path(__file__).parents[2] / "docs" / "MONITORING.md"


def test_every_alert_uses_metrics_that_the_broker_exposes() -> None:
    with Broker() as broker:
        exposition = broker.node.metrics.exposition()
    exposed = set(re.findall(r"^(tailrace_\w+)", exposition, re.MULTILINE))
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(re.findall(r"tailrace_\w+", rule["expr"])) <= exposed, rule["alert"]


def test_every_metric_that_the_page_says_to_alert_on_has_an_alert() -> None:
    table = PAGE.read_text().partition("## Alerts")[2].partition("\n## ")[0]
    names = re.findall(r"`(tailrace_\w+)`", table)
    assert names
    for name in names:
        assert name in RULES.read_text(), name
