"""The lag of groups as one report: what the monitor published last, or what two samples show."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tailrace.facts.lag import GroupLag, LagRow

MONITOR, SAMPLED = "monitor", "sampled"


class LagReport(NamedTuple):
    """`rates` says where the rates come from: MONITOR or SAMPLED. `group_names` are those of all groups there are."""

    at: int
    source: str
    rates: str
    groups: list[GroupLag]
    group_names: frozenset[str]

    def rows(self) -> Iterator[tuple[GroupLag, LagRow]]:
        for group in self.groups:
            for row in group.rows:
                yield group, row

    def as_json(self) -> dict[str, Any]:
        return {
            "at": rfc3339(self.at),
            "source": self.source,
            "rates": self.rates,
            "groups": [row for group in self.groups for row in rows_of(group, self.at)],
        }


def rows_of(group: GroupLag, now_ms: int) -> Iterator[dict[str, Any]]:
    """The rows of a group as `tailrace lag --json` prints them. JSON has no infinity: never is null."""
    as_of = rfc3339(group.at)
    return (_shown(group.group, as_of, row, now_ms) for row in group.rows)


def _shown(group: str, as_of: str, row: LagRow, now_ms: int) -> dict[str, Any]:
    return {
        "group": group,
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed,
        "start": row.start,
        "end": row.end,
        "lag_records": row.lag_records,
        "lag_bytes": row.lag_bytes,
        "bytes_exact": row.bytes_exact,
        "lag_seconds": row.lag_seconds(now_ms),
        "produce_rate": row.produce_rate,
        "consume_rate": row.consume_rate,
        "catchup_seconds": None if (seconds := row.catchup_seconds) is None else round(seconds, 1),
        "loss_seconds": row.loss_seconds(now_ms),
        "loss_low_seconds": row.loss_low_seconds(now_ms),
        "rule": row.rule,
        "state": row.state,
        "unread_lost": row.unread_lost,
        "estimate": row.estimate,
        "as_of": as_of,
    }


def rfc3339(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
