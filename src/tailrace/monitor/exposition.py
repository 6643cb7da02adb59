"""Renders what the monitor has measured in Prometheus' text format. `FAMILIES` has the name of every metric.

Names that begin with `kafka_` are those of kafka-lag-exporter and klag-exporter, so that their dashboards and rules go
on working. Labels that are always empty are left out: to Prometheus that is the same.

With more partitions of groups than `tailrace.monitor.series.max`, metrics are by group and topic, without a partition:
sums of records and bytes, and the worst of all times. So they are where the page would be longer than `PAGE_BYTES_MAX`;
if it still is, those of groups and topics are left out.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from tailrace.facts.alerts import Alert, AlertRule, AlertState
from tailrace.facts.lag import LagRow
from tailrace.monitor.alerts.rules import Measurement


class Family(NamedTuple):
    kind: str
    text: str
    labels: tuple[str, ...] = ()


_ROW = ("group", "topic", "partition")
_KAFKA_GROUP = ("cluster_name", "group")
_KAFKA_PARTITION = ("cluster_name", "topic", "partition")
_KAFKA_ROW = ("cluster_name", "group", "topic", "partition")
FAMILIES: dict[str, Family] = {
    "tailrace_monitor_updated_timestamp_seconds": Family("gauge", "When the monitor last measured."),
    "tailrace_alerts": Family("gauge", "Alerts, by rule and state.", ("rule", "state")),
    "tailrace_alert_deliveries_total": Family(
        "counter", "Attempts to deliver an alert, by target and outcome.", ("to", "outcome")
    ),
    "tailrace_group_lag_records": Family("gauge", "Messages that the group has still to read.", _ROW),
    "tailrace_group_lag_bytes": Family("gauge", "Bytes that the group has still to read.", _ROW),
    "tailrace_group_lag_seconds": Family("gauge", "Age of the first message that the group has not read.", _ROW),
    "tailrace_group_catchup_seconds": Family(
        "gauge", "Until the group has caught up at its present rate; +Inf is never.", _ROW
    ),
    "tailrace_group_loss_seconds": Family(
        "gauge", "Until the group is expected to miss messages; +Inf is never.", (*_ROW, "rule")
    ),
    "tailrace_group_loss_low_seconds": Family(
        "gauge", "The same at the worst rates of the last hour: the earliest time.", _ROW
    ),
    "tailrace_group_state": Family("gauge", "1 for the state that the group is in.", (*_ROW, "state")),
    "tailrace_group_lost_records_total": Family(
        "counter", "Messages deleted before the group had read them.", (*_ROW, "reason")
    ),
    "tailrace_group_lost_bytes_total": Family("counter", "Bytes of these messages, where known.", (*_ROW, "reason")),
    "tailrace_topic_buffer_seconds": Family(
        "gauge", "For how long the topic keeps messages: at today's rate, and at full speed.", ("topic", "rate")
    ),
    "tailrace_disk_buffer_seconds": Family(
        "gauge", "Until the disk is full: at today's rate, and at full speed.", ("path", "rate")
    ),
    "kafka_consumergroup_group_offset": Family("gauge", "Committed offset.", _KAFKA_ROW),
    "kafka_consumergroup_group_lag": Family("gauge", "Lag in offsets.", _KAFKA_ROW),
    "kafka_consumergroup_group_lag_seconds": Family("gauge", "Lag in seconds.", _KAFKA_ROW),
    "kafka_consumergroup_group_messages_lost": Family("gauge", "Offsets between commit and log start.", _KAFKA_ROW),
    "kafka_consumergroup_group_retention_margin": Family("gauge", "Offsets from log start to commit.", _KAFKA_ROW),
    "kafka_consumergroup_group_lag_retention_ratio": Family("gauge", "Lag in percent of the log.", _KAFKA_ROW),
    "kafka_consumergroup_group_max_lag": Family("gauge", "Largest lag in offsets.", _KAFKA_GROUP),
    "kafka_consumergroup_group_max_lag_seconds": Family("gauge", "Largest lag in seconds.", _KAFKA_GROUP),
    "kafka_consumergroup_group_sum_lag": Family("gauge", "Sum of lags in offsets.", _KAFKA_GROUP),
    "kafka_consumergroup_group_topic_sum_lag": Family("gauge", "The same by topic.", (*_KAFKA_GROUP, "topic")),
    "kafka_partition_latest_offset": Family("gauge", "End of the partition.", _KAFKA_PARTITION),
    "kafka_partition_earliest_offset": Family("gauge", "Start of the partition.", _KAFKA_PARTITION),
    "kafka_consumergroup_poll_time_ms": Family("gauge", "Duration of a measurement.", ("cluster_name",)),
}
PAGE_BYTES_MAX = 48 << 20  # less than the broker takes
_STATES = ("stopped", "stalled", "rewound", "slow", "ok")  # the worst first

Labels = tuple[object, ...]


class Page:
    """Samples by family, in the order of `FAMILIES`."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[Labels, float]] = defaultdict(dict)

    def put(self, name: str, value: float | None, *labels: object) -> None:
        """None is never: +Inf."""
        self._samples[name][labels] = math.inf if value is None else value

    def text(self) -> str:
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name, family in FAMILIES.items():
            if samples := self._samples.get(name):
                yield f"# HELP {name} {family.text}\n# TYPE {name} {family.kind}\n"
                for labels, value in samples.items():
                    yield f"{name}{_braces(family.labels, labels)} {_number(value)}\n"


def _braces(names: tuple[str, ...], values: Labels) -> str:
    pairs = [f'{name}="{_escaped(str(value))}"' for name, value in zip(names, values, strict=True) if value is not None]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(round(value, 6))


class Detail(IntEnum):
    """What metrics are by: the more, the longer the page."""

    CLUSTER = 0
    TOPIC = 1
    PARTITION = 2


def render(
    measured: Measurement,
    alerts: Iterable[Alert],
    deliveries: Mapping[tuple[str, str], int],
    *,
    series_max: int,
    cluster_name: str,
) -> str:
    counts = Counter((alert.rule, alert.state) for alert in alerts)
    rows = sum(len(group.rows) for group in measured.groups)
    for detail in (Detail.PARTITION, Detail.TOPIC) if rows <= series_max else (Detail.TOPIC,):
        text = _page(measured, counts, deliveries, detail, series_max, cluster_name)
        if (len(text) if text.isascii() else len(text.encode())) <= PAGE_BYTES_MAX:
            return text
    return _page(measured, counts, deliveries, Detail.CLUSTER, series_max, cluster_name)


def _page(
    measured: Measurement,
    alerts: Mapping[tuple[AlertRule, AlertState], int],
    deliveries: Mapping[tuple[str, str], int],
    detail: Detail,
    series_max: int,
    cluster_name: str,
) -> str:
    page = Page()
    page.put("tailrace_monitor_updated_timestamp_seconds", round(measured.at / 1000, 3))
    for (rule, state), count in sorted(alerts.items()):
        page.put("tailrace_alerts", count, rule, state)
    for (target, outcome), count in sorted(deliveries.items()):
        page.put("tailrace_alert_deliveries_total", count, target, outcome)
    for path, buffer in measured.disk_buffers.items():
        page.put("tailrace_disk_buffer_seconds", buffer.today, path, "today")
        page.put("tailrace_disk_buffer_seconds", buffer.full, path, "full")
    page.put("kafka_consumergroup_poll_time_ms", round(measured.seconds * 1000), cluster_name)
    if detail is not Detail.CLUSTER:
        _put_topics(page, measured, detail, series_max, cluster_name)
    return page.text()


def _put_topics(page: Page, measured: Measurement, detail: Detail, series_max: int, cluster_name: str) -> None:
    has_partitions = detail is Detail.PARTITION
    for group in measured.groups:
        _put_group(page, measured, group.group, group.rows, cluster_name, has_partitions=has_partitions)
    _put_losses(page, measured, has_partitions=has_partitions)
    for topic, buffer in measured.topic_buffers.items():
        page.put("tailrace_topic_buffer_seconds", buffer.today, topic, "today")
        page.put("tailrace_topic_buffer_seconds", buffer.full, topic, "full")
    if len(measured.ends) <= series_max:
        for (topic, partition), (start, end) in measured.ends.items():
            page.put("kafka_partition_latest_offset", end, cluster_name, topic, partition)
            page.put("kafka_partition_earliest_offset", start, cluster_name, topic, partition)


def _put_group(
    page: Page,
    measured: Measurement,
    group: str,
    rows: tuple[LagRow, ...],
    cluster_name: str,
    *,
    has_partitions: bool,
) -> None:
    now_ms = measured.at
    for topic, grouped in groupby(sorted(rows, key=_place), key=lambda row: row.topic):
        of_topic = list(grouped)
        if has_partitions:
            for row in of_topic:
                _put_ours(page, [row], now_ms, group, topic, row.partition)
                _put_compatible(page, row, now_ms, (cluster_name, group, topic, row.partition))
        else:
            _put_ours(page, of_topic, now_ms, group, topic, None)
        total = sum(row.lag_records for row in of_topic)
        page.put("kafka_consumergroup_group_topic_sum_lag", total, cluster_name, group, topic)
    if rows:
        lags = [row.lag_records for row in rows]
        page.put("kafka_consumergroup_group_max_lag", max(lags), cluster_name, group)
        page.put("kafka_consumergroup_group_sum_lag", sum(lags), cluster_name, group)
        seconds = max((row.lag_seconds(now_ms) or 0.0) for row in rows)
        page.put("kafka_consumergroup_group_max_lag_seconds", seconds, cluster_name, group)


def _place(row: LagRow) -> tuple[str, int]:
    return row.topic, row.partition


def _put_ours(page: Page, rows: list[LagRow], now_ms: int, *place: object) -> None:
    """One partition, or all of a topic."""
    page.put("tailrace_group_lag_records", sum(row.lag_records for row in rows), *place)
    sizes = [row.lag_bytes for row in rows if row.lag_bytes is not None]
    if sizes:
        page.put("tailrace_group_lag_bytes", sum(sizes), *place)
    ages = [age for row in rows if (age := row.lag_seconds(now_ms)) is not None]
    if ages:
        page.put("tailrace_group_lag_seconds", max(ages), *place)
    catchups = [row.catchup_seconds for row in rows]
    never = any(one is None for one in catchups)
    page.put("tailrace_group_catchup_seconds", None if never else max(one or 0.0 for one in catchups), *place)
    first = min(rows, key=lambda row: math.inf if row.loss_at is None else row.loss_at)
    page.put("tailrace_group_loss_seconds", first.loss_seconds(now_ms), *place, first.rule or "")
    lows = [left for row in rows if (left := row.loss_low_seconds(now_ms)) is not None]
    page.put("tailrace_group_loss_low_seconds", min(lows, default=None), *place)
    state = min((row.state for row in rows), key=lambda one: _STATES.index(one) if one in _STATES else 0)
    page.put("tailrace_group_state", 1, *place, state)


def _put_compatible(page: Page, row: LagRow, now_ms: int, place: Labels) -> None:
    page.put("kafka_consumergroup_group_offset", row.committed, *place)
    page.put("kafka_consumergroup_group_lag", row.lag_records, *place)
    page.put("kafka_consumergroup_group_lag_seconds", row.lag_seconds(now_ms) or 0.0, *place)
    page.put("kafka_consumergroup_group_messages_lost", row.unread_lost, *place)
    page.put("kafka_consumergroup_group_retention_margin", row.committed - row.start, *place)
    kept = row.end - row.start
    ratio = 100 * row.lag_records / kept if kept > 0 else 0.0
    page.put("kafka_consumergroup_group_lag_retention_ratio", ratio, *place)


def _put_losses(page: Page, measured: Measurement, *, has_partitions: bool) -> None:
    records: Counter[Labels] = Counter()
    sizes: Counter[Labels] = Counter()
    for loss in measured.losses:
        place = (loss.group, loss.topic, loss.partition if has_partitions else None, loss.reason)
        records[place] += loss.records
        sizes[place] += loss.size or 0
    for lost, count in records.items():
        page.put("tailrace_group_lost_records_total", count, *lost)
        page.put("tailrace_group_lost_bytes_total", sizes[lost], *lost)
