"""Metrics of the monitor: names, labels and values as Prometheus reads them."""

import re
from typing import Any

import pytest

from tailrace.facts.alerts import Alert, AlertRule, AlertState
from tailrace.facts.lag import GroupLag, LagRow
from tailrace.facts.losses import Loss, LossKind, LossReason
from tailrace.monitor import exposition
from tailrace.monitor.alerts.rules import Measurement
from tailrace.monitor.exposition import FAMILIES, render
from tailrace.monitor.figures.buffers import Buffer
from tailrace.server.children import child

NOW = 1_800_000_000_000
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Labels = frozenset[tuple[str, str]]


def row(topic: str = "orders", partition: int = 0, **fields: Any) -> LagRow:
    values: dict[str, Any] = {
        **{"topic": topic, "partition": partition, "committed": 90, "start": 0, "end": 100, "state": "slow"},
        **{"lag_records": 10, "lag_bytes": 1000, "bytes_exact": True, "unread_at": NOW - 5000, "unread_lost": 0},
        **{"produce_rate": 3.0, "consume_rate": 2.0, "loss_at": NOW + 60_000, "loss_low_at": NOW + 30_000},
        **{"rule": "age", "estimate": False},
    }
    return LagRow(**{**values, **fields})


def everything(series_max: int = 100) -> str:
    rows = (row(), row(partition=1, lag_records=0, lag_bytes=0, unread_at=None, loss_at=None, loss_low_at=None))
    group = GroupLag('bill"ing\\\n', NOW, True, rows)
    loss = Loss(LossKind.MISSED, "orders", "id", 0, 5, 9, 5, True, NOW, LossReason.AGE, "gone", 500)
    alert = Alert(AlertRule.LOSS, "gone", "orders", 0, AlertState.RAISED, NOW, NOW, 5.0, 0.0, "")
    measured = Measurement(
        NOW, [group], [loss, loss], {}, {("orders", 0): (0, 100)},
        {"orders": Buffer(3600, None)}, {"/data": Buffer(7200, 60)}, "tailrace", 0.25,
    )  # fmt: skip
    return render(measured, [alert], {("log", "delivered"): 3}, series_max=series_max, cluster_name="tailrace")


def samples(text: str) -> dict[tuple[str, Labels], float]:
    """Parses the text format, which has one sample a line."""
    found: dict[tuple[str, Labels], float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
        pairs = {label: unescaped(said) for label, said in LABEL.findall(labels or "")}
        found[name, frozenset(pairs.items())] = float(value)
    return found


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def test_every_metric_is_rendered_with_its_labels() -> None:
    found = samples(everything())
    assert {name for name, _ in found} == FAMILIES.keys()
    for name, labels in found:
        assert {label for label, _ in labels} == set(FAMILIES[name].labels), name


def test_values_are_those_of_the_rows_and_never_is_infinite() -> None:
    found = samples(everything())
    place = frozenset({("group", 'bill"ing\\\n'), ("topic", "orders"), ("partition", "0")})
    assert found["tailrace_group_lag_records", place] == 10
    assert found["tailrace_group_lag_seconds", place] == 5
    assert found["tailrace_group_catchup_seconds", place] == float("inf")
    assert found["tailrace_group_loss_seconds", place | {("rule", "age")}] == 60
    assert found["tailrace_group_loss_low_seconds", place] == 30
    assert found["tailrace_monitor_updated_timestamp_seconds", frozenset()] == NOW / 1000
    lost = frozenset({("group", "gone"), ("topic", "orders"), ("partition", "0"), ("reason", "age")})
    assert found["tailrace_group_lost_records_total", lost] == 10
    assert found["tailrace_topic_buffer_seconds", frozenset({("topic", "orders"), ("rate", "full")})] == float("inf")


def test_above_the_limit_of_series_metrics_are_by_group_and_topic() -> None:
    found = samples(everything(series_max=1))
    ours = [(name, dict(labels)) for name, labels in found if name.startswith("tailrace_group_")]
    assert ours
    assert all("partition" not in labels for _, labels in ours)
    place = frozenset({("group", 'bill"ing\\\n'), ("topic", "orders")})
    assert found["tailrace_group_lag_records", place] == 10
    assert found["tailrace_group_loss_low_seconds", place] == 30
    assert found["tailrace_group_state", place | {("state", "slow")}] == 1
    assert not any(name == "kafka_consumergroup_group_lag" for name, _ in found)
    assert any(name == "kafka_consumergroup_group_sum_lag" for name, _ in found)


def test_a_page_that_would_be_too_long_leaves_out_partitions_and_then_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, by_topic = everything(), everything(series_max=1)
    assert len(by_topic.encode()) < len(whole.encode()) - 1
    for limit, expected in ((len(whole.encode()), whole), (len(whole.encode()) - 1, by_topic)):
        monkeypatch.setattr(exposition, "PAGE_BYTES_MAX", limit)
        assert names(everything()) == names(expected)
    monkeypatch.setattr(exposition, "PAGE_BYTES_MAX", len(by_topic.encode()) - 500)
    left = names(everything())
    assert {"tailrace_monitor_updated_timestamp_seconds", "tailrace_alerts", "tailrace_disk_buffer_seconds"} <= left
    assert not any(name.startswith("tailrace_group_") for name in left)


def names(text: str) -> set[str]:
    return {name for name, _ in samples(text)}


def test_the_broker_takes_the_longest_page_of_the_monitor() -> None:
    """A page of 20,000 partitions of groups, the default limit, is one of some 35 MiB."""
    assert exposition.PAGE_BYTES_MAX + child.READ_BYTES < child.PAGE_BYTES_MAX


@pytest.mark.parametrize("series_max", [1, 100])
def test_no_sample_comes_twice(series_max: int) -> None:
    lines = [line.rpartition(" ")[0] for line in everything(series_max).splitlines() if line[0] != "#"]
    assert len(set(lines)) == len(lines)
    assert all(re.fullmatch(r"\w+(\{.*\})?", line) for line in lines)
