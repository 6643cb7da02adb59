"""Output of `tailrace queue`: the rows of a list, or one queue in full; as JSON, or for people."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.cli.common import configs as config_words
from tailrace.cli.common import output
from tailrace.cli.common.topics.offsets import Offsets, Partition, existing
from tailrace.cli.queue.creation import ATTEMPTS, DEAD_LETTER, LOCK, RETRY_DELAY
from tailrace.cli.queue.here import Here
from tailrace.cli.queue.requests import ShareGroup, ShareOffset, TopicPartition

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_RATE_SECONDS = 0.5  # for how long messages that are finished are counted
_WIDTH = 100
_FACTS = ("in_flight", "parked", "dead_lettered", "expired", "lost")


def rows(here: Here) -> list[dict[str, Any]]:
    return [_row(here, group) for group in here.requests.share_groups()]


def table(shown: list[dict[str, Any]]) -> "Table":
    drawn = output.table("QUEUE", "STATE", "TOPICS", "MEMBERS", "BACKLOG", texts=("STATE", "TOPICS"))
    for row in shown:
        topics = ", ".join(row["topics"]) or "-"
        drawn.add_row(_clean(row["name"]), row["state"], topics, output.number(row["members"]), _count(row["backlog"]))
    return drawn


def details(here: Here, name: str, group: ShareGroup) -> dict[str, Any]:
    configs = here.requests.group_configs(name)
    dead_letter = configs.get(DEAD_LETTER)
    before = _Sample.of(here, name)
    if before.offsets:
        time.sleep(_RATE_SECONDS)
    sample = _Sample.of(here, name)
    return {
        "name": name,
        "state": state_of(group),
        "members": len(group.members),
        "dead_letter": None if dead_letter is None else dead_letter.value or None,
        "configs": {one.name: one.value for one in configs.values() if one.source == config_words.GROUP},
        "topics": [_partition(at, sample, before) for at in sorted(sample.offsets)],
    }


def show(shown: dict[str, Any], console: "Console") -> None:
    partitions = shown["topics"]
    console.print(_clean(shown["name"]), style="bold", end="")
    members = output.plural(shown["members"], "member")
    console.print(f"  {shown['state']}, {members}, backlog {_count(_sum(row['backlog'] for row in partitions))}")
    console.print("; ".join(_settings(shown)), style="dim")
    if partitions:
        console.print()
        output.draw(_partitions(partitions), console)
    if said := remarks(partitions):
        console.print()
    for line in said:
        console.print(line, soft_wrap=True)


def remarks(partitions: list[dict[str, Any]]) -> list[str]:
    """Returns what deserves attention."""
    said = []
    for row in partitions:
        at = Partition(row["topic"], row["partition"])
        again = {int(attempt): count for attempt, count in (row["attempts"] or {}).items() if int(attempt) > 1}
        if again:
            counts = ", ".join(f"{output.number(count)} at attempt {attempt}" for attempt, count in again.items())
            said.append(f"{at}: unfinished after more than one attempt: {counts}")
        ended = {name: row[name] for name in ("dead_lettered", "expired", "lost") if row[name]}
        if ended:
            counts = ", ".join(f"{output.number(count)} {name.replace('_', '-')}" for name, count in ended.items())
            said.append(f"{at}: {counts}")
    return said


def state_of(group: ShareGroup) -> str:
    return group.state.lower()


class _Sample(NamedTuple):
    """How far a queue is at one time."""

    offsets: dict[TopicPartition, ShareOffset]
    ends: dict[TopicPartition, int]
    taken: float

    @classmethod
    def of(cls, here: Here, name: str) -> "_Sample":
        offsets = here.requests.offsets(name)
        partitions = existing((Partition(*at) for at in offsets), here.metadata)
        found = Offsets(here.brokers, here.admin).latest(partitions)
        return cls(offsets, {TopicPartition(*at): end for at, end in found.items()}, time.monotonic())

    def finished(self, at: TopicPartition) -> int | None:
        """A count that grows with each message that is finished."""
        one, end = self.offsets.get(at), self.ends.get(at)
        return None if one is None or one.unfinished is None or end is None else end - one.unfinished


def _row(here: Here, group: ShareGroup) -> dict[str, Any]:
    offsets = here.requests.offsets(group.name)
    return {
        "name": group.name,
        "state": state_of(group),
        "topics": sorted({at.topic for at in offsets}),
        "members": len(group.members),
        "backlog": _sum(one.unfinished for one in offsets.values()),
    }


def _partition(at: TopicPartition, sample: _Sample, before: _Sample) -> dict[str, Any]:
    one = sample.offsets[at]
    facts = one.facts
    oldest = None if facts is None or facts.oldest_ms is None else max(0, round(time.time() * 1000) - facts.oldest_ms)
    counted = {name: None if facts is None else getattr(facts, name) for name in _FACTS}
    return {
        "topic": at.topic,
        "partition": at.partition,
        "start": one.start,
        "end": sample.ends.get(at),
        "backlog": one.unfinished,
        "in_flight": counted["in_flight"],
        "parked": counted["parked"],
        "oldest_ms": oldest,
        "rate": _rate(before.finished(at), sample.finished(at), sample.taken - before.taken),
        "attempts": None if facts is None else {str(attempt): n for attempt, n in sorted(facts.attempts.items())},
        "dead_lettered": counted["dead_lettered"],
        "expired": counted["expired"],
        "lost": counted["lost"],
    }


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    """Messages finished in a second."""
    return None if before is None or after is None or seconds <= 0 else round(max(0, after - before) / seconds, 1)


def _settings(shown: dict[str, Any]) -> list[str]:
    configs = shown["configs"]
    said = [f"dead letters to {shown['dead_letter']}" if shown["dead_letter"] else "no dead letters"]
    if ATTEMPTS in configs:
        said.append(f"attempts {configs[ATTEMPTS]}")
    for name, word in ((LOCK, "lock"), (RETRY_DELAY, "retry delay")):
        if name in configs:
            said.append(f"{word} {_duration(configs[name])}")
    return said


def _partitions(partitions: list[dict[str, Any]]) -> "Table":
    drawn = output.table("TOPIC", "PARTITION", "START", "BACKLOG", "IN FLIGHT", "PARKED", "OLDEST", "RATE")
    for row in partitions:
        start = "-" if row["start"] is None else output.number(row["start"])
        counts = (_count(row[name]) for name in ("backlog", "in_flight", "parked"))
        oldest = output.duration(None if row["oldest_ms"] is None else row["oldest_ms"] / 1000)
        rate = "-" if row["rate"] is None else f"{row['rate']:,.0f}/s"
        drawn.add_row(row["topic"], str(row["partition"]), start, *counts, oldest, rate)
    return drawn


def _duration(milliseconds: str | None) -> str:
    amount = int(milliseconds or 0)
    return output.duration(amount / 1000) if amount >= 1000 or not amount else f"{amount} ms"


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where a count is not known."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


def _clean(name: str) -> str:
    """Clients choose their names: no terminal is to take one for a command."""
    return output.short(name.encode(), _WIDTH)


def _count(value: int | None) -> str:
    return "-" if value is None else output.number(value)
