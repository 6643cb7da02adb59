"""Output of `tailrace transaction`: the rows of a list, or one transaction in full; as JSON, or for people."""

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import output
from tailrace.cli.common.output import Failure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tailrace.cli.common.admin_requests import AdminRequests, TopicPartition, Transaction

_OPEN = ("ongoing", "prepare_commit", "prepare_abort")
_ID_MAX = 200  # characters of an id on a terminal


def state_of(found: "Transaction") -> str:
    """Kafka's PrepareCommit is prepare_commit."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", found.state).lower()


def rows(found: "Iterable[Transaction]") -> list[dict[str, Any]]:
    """Open transactions come first, the oldest one at the top."""
    now_ms = time.time_ns() // 1_000_000
    shown = [{**_row(one, now_ms), "partitions": len(one.partitions)} for one in found]
    return sorted(shown, key=lambda row: (row["age_ms"] is None, -(row["age_ms"] or 0), row["id"]))


def table(shown: list[dict[str, Any]]) -> "Table":
    drawn = output.table("ID", "STATE", "OPEN FOR", "TIMEOUT", "PARTITIONS", "PRODUCER", texts=("STATE",))
    for row in shown:
        times = (_duration(row["age_ms"]), _duration(row["timeout_ms"]))
        producer = f"{row['producer_id']}:{row['producer_epoch']}"
        drawn.add_row(_clean(row["id"]), row["state"], *times, output.number(row["partitions"]), producer)
    return drawn


def details(found: "Transaction", requests: "AdminRequests") -> dict[str, Any]:
    first: dict[TopicPartition, int | None] = {}
    stable: dict[TopicPartition, int] = {}
    try:
        first = requests.first_offsets(found)
        stable = requests.last_stable_offsets(found)
    except Failure as failure:  # a partition that is offline does not hide the transaction
        output.warn(f"not all offsets are known: {failure}")
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "first_offset": first.get(partition),
            "last_stable_offset": stable.get(partition),
        }
        for partition in found.partitions
    ]
    return {**_row(found, time.time_ns() // 1_000_000), "partitions": partitions}


def show(shown: dict[str, Any], console: "Console") -> None:
    age = "" if shown["age_ms"] is None else f", open for {_duration(shown['age_ms'])}"
    console.print(_clean(shown["id"]), style="bold", end="")
    console.print(f"  {shown['state']}{age}")
    began = "" if shown["started_ms"] is None else f", begun {output.time(shown['started_ms'])}"
    producer = f"producer {shown['producer_id']}, epoch {shown['producer_epoch']}"
    console.print(f"{producer}, timeout {_duration(shown['timeout_ms'])}{began}", style="dim")
    partitions: list[dict[str, Any]] = shown["partitions"]
    if not partitions:
        return
    console.print()
    drawn = output.table("TOPIC", "PARTITION", "FIRST OFFSET", "LAST STABLE OFFSET")
    for row in partitions:
        offsets = (_offset(row["first_offset"]), _offset(row["last_stable_offset"]))
        drawn.add_row(row["topic"], str(row["partition"]), *offsets)
    output.draw(drawn, console)
    if any(row["first_offset"] is not None and row["first_offset"] == row["last_stable_offset"] for row in partitions):
        console.print()
        console.print(
            "Consumers of committed records stop at its first offset until it ends. "
            f"`tailrace transaction abort {_clean(shown['id'])}` ends it.",
            soft_wrap=True,
        )


def described(found: "Transaction") -> str:
    """In one line, for a question."""
    row = _row(found, time.time_ns() // 1_000_000)
    age, partitions = _duration(row["age_ms"]), output.plural(len(found.partitions), "partition")
    return f"the transaction of {_clean(found.transactional_id)}, open for {age}, with {partitions}"


def _row(found: "Transaction", now_ms: int) -> dict[str, Any]:
    open_since_ms = found.started_ms if state_of(found) in _OPEN else None
    return {
        "id": found.transactional_id,
        "state": state_of(found),
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "age_ms": None if open_since_ms is None else max(now_ms - open_since_ms, 0),
    }


def _duration(milliseconds: int | None) -> str:
    return output.duration(None if milliseconds is None else milliseconds // 1000)


def _offset(offset: int | None) -> str:
    return "-" if offset is None else output.number(offset)


def _clean(text: str) -> str:
    return output.short(text.encode(), _ID_MAX)
