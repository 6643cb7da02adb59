"""What a rewind of a group does to producers: a topic may slow or refuse them while that group is too far behind."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.cli.common import output
from tailrace.cli.common.client import AdminClient, ClusterMetadata, ConfigResource, ResourceType
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.output import Failure
from tailrace.cli.common.topics import published
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.group.reset import Plan
from tailrace.facts import segments
from tailrace.facts.segments import PartitionFact

_TOPIC = "__tailrace_segments"
_PREFIX = "tailrace.backlog."
_OF_PRODUCERS = ("backpressure", "reject")


class Limits(NamedTuple):
    """How far a named group may be behind in each partition, before producers are slowed or refused; -1: no limit."""

    policy: str
    bytes: int
    ms: int


def warnings(
    connection: Connection, admin: AdminClient, metadata: ClusterMetadata, name: str, plan: Plan
) -> Iterator[str]:
    """Yields a line for each partition in which the plan moves the group so far back that producers are refused."""
    back = {at: move.target for at, move in plan.items() if move.target is not None and move.skipped < 0}
    limits = _limits(connection, admin, name, {at.topic for at in back})
    back = {at: target for at, target in back.items() if at.topic in limits}
    if not back:
        return
    sizes = _bytes_per_offset(connection, metadata, back)
    ages = published.timestamps_at(connection, {at: back[at] for at in back if limits[at.topic].ms >= 0})
    now_ms = int(time.time() * 1000)
    for at, target in back.items():
        limit, count = limits[at.topic], plan[at].standing.end - target
        if limit.bytes >= 0 and at not in sizes:
            size = output.size(limit.bytes)
            yield f"{at}: {_effect(limit)} if these messages are larger than {size}; their size is not known"
        elif limit.bytes >= 0 and count * sizes[at] >= limit.bytes:
            unread = f"about {output.size(round(count * sizes[at]))}, by their share of the segments"
            yield f"{at}: {_effect(limit)}: unread are {unread}; the limit is {output.size(limit.bytes)}"
        if limit.ms >= 0 and at in ages and now_ms - ages[at] >= limit.ms:
            age = output.number((now_ms - ages[at]) // 1000)
            yield f"{at}: {_effect(limit)}: the first unread message is {age} s old; the limit is {limit.ms / 1000:g} s"


def _effect(limit: Limits) -> str:
    return f"producers would be refused (policy {limit.policy})"


def _limits(connection: Connection, admin: AdminClient, name: str, topics: set[str]) -> dict[str, Limits]:
    """The limits of those topics in which this group can stop producers. Other brokers than ours have none."""
    found = {}
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
    futures = admin.describe_configs(asked, request_timeout=REQUEST_SECONDS) if asked else {}
    for resource, future in futures.items():
        try:
            entries = connection.result(future, f"the configs of {resource.name} cannot be had")
        except Failure as failure:  # no reason to refuse the reset itself
            output.warn(f"whether this stops producers is not known: {failure}")
            continue
        texts = {key: str(entry.value or "") for key, entry in entries.items() if key.startswith(_PREFIX)}
        groups = [group.strip() for group in texts.get(f"{_PREFIX}groups", "").split(",")]
        policy = texts.get(f"{_PREFIX}policy", "drop")
        if policy in _OF_PRODUCERS and name in groups:
            limits = (int(texts.get(f"{_PREFIX}{unit}", "-1")) for unit in ("bytes", "ms"))
            found[str(resource.name)] = Limits(policy, *limits)
    return found


def _bytes_per_offset(
    connection: Connection, metadata: ClusterMetadata, partitions: Iterable[Partition]
) -> dict[Partition, float]:
    """Returns the mean bytes per offset, for each partition whose segments the broker has published."""
    if _TOPIC not in metadata.topics:
        return {}
    wanted = set(partitions)
    found: dict[Partition, PartitionFact] = {}
    for message in published.all_of(connection, _TOPIC):
        value = message.value()
        if value is None:
            continue
        named = json.loads(value)
        at = Partition(str(named.get("topic")), int(named.get("partition", -1)))
        if at in wanted:
            found[at] = segments.decode(value)
    return {
        at: sum(segment.size for segment in fact.segments) / (fact.segments[-1].next - fact.segments[0].base)
        for at, fact in found.items()
        if fact.segments and fact.segments[-1].next > fact.segments[0].base
    }
