"""Writes the Grafana dashboard and the rules for Prometheus under packaging/, from the names of the monitor's metrics.

python scripts/monitoring_files.py            writes both
python scripts/monitoring_files.py --check    ends with 1 where a file is not what would be written

Every expression here is checked against `tailrace.monitor.exposition.FAMILIES`: a name or a label that the monitor does
not have ends the script.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.monitor.alerts.settings import DEFAULTS
from tailrace.monitor.exposition import FAMILIES

PACKAGING = Path(__file__).parents[1] / "packaging"
DASHBOARD = PACKAGING / "grafana-dashboard.json"
RULES = PACKAGING / "prometheus-lag-rules.yml"
_BY_TOPIC = "group, topic"
_CHOSEN = 'group=~"$group",topic=~"$topic"'


class Rule(NamedTuple):
    name: str
    expression: str
    wait: str
    severity: str
    summary: str


def _seconds(name: str) -> str:
    return DEFAULTS[f"tailrace.alert.{name}.seconds"]


def _lost(time: str, by: str, selector: str = "") -> str:
    """Messages lost in this time. `increase` counts from the first sample of a series on, and each reason for which a
    group loses messages has a series that begins with its first loss.
    """
    total = f"sum by ({by}) (tailrace_group_lost_records_total{selector}%s)"
    now = total % ""
    return f"{now} - ({total % f' offset {time}'} or 0 * {now})"


_WAS_SCRAPED = "and on (instance) tailrace_monitor_updated_timestamp_seconds offset 10m"  # else all losses are new
ALERTS = (
    Rule("TailraceLossAhead",
         f"min by ({_BY_TOPIC}) (tailrace_group_loss_low_seconds) < {_seconds('loss')}", "1m", "page",
         "group {{ $labels.group }} begins to miss messages of {{ $labels.topic }} in {{ $value | humanizeDuration }}"),
    Rule("TailraceLoss", f"{_lost('10m', f'instance, {_BY_TOPIC}')} > 0 {_WAS_SCRAPED}", "", "page",
         "group {{ $labels.group }} has lost messages of {{ $labels.topic }}"),
    Rule("TailraceGroupStopped",
         f'max by ({_BY_TOPIC}) (tailrace_group_state{{state=~"stopped|stalled"}}) == 1', "1m", "warning",
         "group {{ $labels.group }} does not move on in {{ $labels.topic }}"),
    Rule("TailraceLagSeconds",
         f"max by ({_BY_TOPIC}) (tailrace_group_lag_seconds) > {_seconds('lag')}", "5m", "warning",
         "group {{ $labels.group }} is {{ $value | humanizeDuration }} behind on {{ $labels.topic }}"),
    Rule("TailraceDiskBuffer", f'min(tailrace_disk_buffer_seconds{{rate="today"}}) < {_seconds("disk")}', "5m", "page",
         "the disk is full in {{ $value | humanizeDuration }} at today's rate"),
    Rule("TailraceCannotDeliver", 'increase(tailrace_alert_deliveries_total{outcome!="delivered"}[10m]) > 0', "5m",
         "warning", "alerts cannot be delivered to the {{ $labels.to }}"),
    Rule("TailraceMonitorStale", "time() - tailrace_monitor_updated_timestamp_seconds > 120", "", "warning",
         "the monitor of {{ $labels.instance }} has not measured for two minutes"),
)  # fmt: skip


def rules() -> str:
    lines = [
        "# Alerts on consumer groups, for `rule_files` of Prometheus. docs/SLOW_CONSUMERS.md says what to do.",
        "# Written by scripts/monitoring_files.py: change that, and run it.",
        "groups:",
        "  - name: tailrace-lag",
        "    rules:",
    ]
    for rule in ALERTS:
        lines.append(f"      - alert: {rule.name}")
        lines.append(f"        expr: {checked(rule.expression)}")
        if rule.wait:
            lines.append(f"        for: {rule.wait}")
        lines.append(f"        labels: {{severity: {rule.severity}}}")
        lines.append("        annotations:")
        lines.append(f"          summary: {json.dumps(rule.summary)}")
    return "\n".join(lines) + "\n"


def checked(expression: str) -> str:
    """Raises SystemExit for a metric, or a label of one, that the monitor does not have."""
    for name, selector in re.findall(r"\b((?:tailrace|kafka)_\w+)(?:\{([^}]*)\})?", expression):
        if name not in FAMILIES:
            raise SystemExit(f"the monitor has no metric {name}: {expression}")
        unknown = set(re.findall(r"(\w+)\s*[=!]", selector)) - set(FAMILIES[name].labels)
        if unknown:
            raise SystemExit(f"{name} has no label {', '.join(sorted(unknown))}: {expression}")
    return expression


class Panel(NamedTuple):
    title: str
    kind: str
    targets: tuple[tuple[str, str], ...]  # expression and legend
    unit: str
    width: int
    height: int = 8


_LEGEND = "{{group}} {{topic}}"
ROWS = (
    (
        Panel("Least time to loss", "stat",
              ((f"min(tailrace_group_loss_low_seconds{{{_CHOSEN}}})", "least"),), "s", 6, 4),
        Panel("Disk buffer", "stat", (('min(tailrace_disk_buffer_seconds{rate="today"})', "today"),
                                      ('min(tailrace_disk_buffer_seconds{rate="full"})', "at full speed")), "s", 6, 4),
        Panel("Lost in 24 h", "stat",
              ((f"sum({_lost('24h', _BY_TOPIC, f'{{{_CHOSEN}}}')})", "lost"),),
              "short", 6, 4),
        Panel("Alerts raised", "stat",
              (('sum(tailrace_alerts{state="raised"}) or vector(0)', "raised"),), "short", 6, 4),
    ),
    (
        Panel("Groups and topics", "table", (
            (f"max by ({_BY_TOPIC}) (tailrace_group_lag_seconds{{{_CHOSEN}}})", "lag seconds"),
            (f"sum by ({_BY_TOPIC}) (tailrace_group_lag_records{{{_CHOSEN}}})", "messages"),
            (f"sum by ({_BY_TOPIC}) (tailrace_group_lag_bytes{{{_CHOSEN}}})", "bytes"),
            (f"max by ({_BY_TOPIC}) (tailrace_group_catchup_seconds{{{_CHOSEN}}})", "catch-up"),
            (f"min by ({_BY_TOPIC}) (tailrace_group_loss_low_seconds{{{_CHOSEN}}})", "loss in"),
            (f"max by ({_BY_TOPIC}, state) (tailrace_group_state{{{_CHOSEN}}})", "state"),
        ), "short", 24, 10),
    ),
    (
        Panel("Lag in seconds", "timeseries",
              ((f"max by ({_BY_TOPIC}) (tailrace_group_lag_seconds{{{_CHOSEN}}})", _LEGEND),), "s", 12),
        Panel("Lag in messages", "timeseries",
              ((f"sum by ({_BY_TOPIC}) (tailrace_group_lag_records{{{_CHOSEN}}})", _LEGEND),), "short", 12),
    ),
    (
        Panel("Time to loss", "timeseries",
              ((f"min by ({_BY_TOPIC}) (tailrace_group_loss_seconds{{{_CHOSEN}}}) < +Inf", _LEGEND),), "s", 12),
        Panel("How long topics keep messages", "timeseries",
              (('tailrace_topic_buffer_seconds{rate="today",topic=~"$topic"} < +Inf', "{{topic}}"),), "s", 12),
    ),
)  # fmt: skip


def dashboard() -> str:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        x = 0
        for panel in row:
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += panel.width
        y += row[0].height
    variables = [_variable("group"), _variable("topic")]
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    board = {
        "title": "tailrace: consumer groups",
        "uid": "tailrace-groups",
        "tags": ["tailrace", "kafka"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "panels": panels,
    }
    return json.dumps(board, indent=2) + "\n"


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    is_table = panel.kind == "table"
    targets = [
        {"refId": chr(65 + n), "expr": checked(expression), "legendFormat": legend,
         "instant": panel.kind != "timeseries", **({"format": "table"} if is_table else {})}
        for n, (expression, legend) in enumerate(panel.targets)
    ]  # fmt: skip
    made: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
    if is_table:
        names = {f"Value #{chr(65 + n)}": legend for n, (_, legend) in enumerate(panel.targets)}
        made["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"renameByName": names, "excludeByName": {"Time": True}}},
            {"id": "sortBy", "options": {"sort": [{"field": "loss in"}]}},
        ]
    return made


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({checked('tailrace_group_lag_records')}, {label})",
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def main() -> None:
    wanted = {DASHBOARD: dashboard(), RULES: rules()}
    if "--check" in sys.argv[1:]:
        old = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        if old:
            raise SystemExit(f"{', '.join(old)}: run scripts/monitoring_files.py")
        return
    for path, text in wanted.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
