"""Partitions in which messages wait for a group that commits nothing: since when, by the history of its positions."""

import time
from typing import Any

from tailrace.cli.common import output
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.topics import published
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.group.groups import Commits
from tailrace.cli.group.history import History

STUCK_SECONDS = 600


def add(rows: list[dict[str, Any]], connection: Connection, history: History, name: str, commits: Commits) -> None:
    """Adds `stuck_seconds` to the rows of partitions: null where the group is not stuck, or where that is not known.
    And `stuck_longer`: whether the group may have been stuck already before the first position that is kept.
    """
    behind = {Partition(row["topic"], row["partition"]): row for row in rows if row["lag"]}
    now_ms = int(time.time() * 1000)
    for row in rows:
        row["stuck_seconds"], row["stuck_longer"] = None, False
    if not behind:
        return
    unmoved = {
        partition: found
        for partition, found in history.unmoved(name, commits).items()
        if partition in behind and now_ms - found.since >= STUCK_SECONDS * 1000
    }
    if not unmoved:
        return
    offsets = {partition: max(found.offset, behind[partition]["start"]) for partition, found in unmoved.items()}
    for partition, waits_since in published.timestamps_at(connection, offsets).items():
        since, exact = unmoved[partition].since, unmoved[partition].exact
        seconds = (now_ms - max(since, waits_since)) / 1000
        if seconds >= STUCK_SECONDS:
            behind[partition]["stuck_seconds"] = round(seconds)
            behind[partition]["stuck_longer"] = not exact and waits_since < since


def remarks(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"{Partition(row['topic'], row['partition'])}: stuck at offset {row['committed']} for "
        f"{'at least ' if row['stuck_longer'] else ''}{_duration(row['stuck_seconds'])}: "
        f"{output.plural(row['lag'], 'message')} to read, and no commit has moved it"
        for row in rows
        if row["stuck_seconds"] is not None
    ]


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
