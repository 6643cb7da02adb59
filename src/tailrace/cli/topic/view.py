"""Output of `tailrace topic`: the rows of a list, or one topic in full; as JSON, or for people."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import configs as config_words
from tailrace.cli.common import output, units
from tailrace.cli.common.client import (
    AdminClient,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    TopicCollection,
)
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.topics.offsets import Offsets, Partition, partitions_of
from tailrace.cli.common.topics.selection import is_internal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_URL_SAFE = str.maketrans("+/", "-_")  # an id in base64 as Kafka prints it; librdkafka uses the other alphabet


def rows(brokers: Connection, admin: AdminClient, metadata: ClusterMetadata, names: list[str]) -> list[dict[str, Any]]:
    partitions = partitions_of(metadata, names)
    offsets = Offsets(brokers, admin)
    start, end = offsets.earliest(partitions), offsets.latest(partitions)
    messages: Counter[str] = Counter()
    for partition in partitions:
        messages[partition.topic] += end[partition] - start[partition]
    return [
        {
            "name": name,
            "partitions": len(metadata.topics[name].partitions),
            "replicas": max((len(part.replicas) for part in metadata.topics[name].partitions.values()), default=0),
            "messages": messages[name],
            "internal": is_internal(name),
        }
        for name in names
    ]


def table(shown: list[dict[str, Any]]) -> "Table":
    drawn = output.table("TOPIC", "PARTITIONS", "REPLICAS", "MESSAGES")
    for row in shown:
        drawn.add_row(row["name"], *(output.number(row[name]) for name in ("partitions", "replicas", "messages")))
    return drawn


def details(brokers: Connection, admin: AdminClient, name: str, *, all_configs: bool) -> dict[str, Any]:
    futures = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS)
    topic = brokers.result(futures[name], f"{name} cannot be shown")
    partitions = _partitions(brokers, admin, name, topic.partitions)
    found = configs(brokers, admin, name)
    return {
        "name": name,
        "id": str(topic.topic_id).translate(_URL_SAFE),
        "internal": topic.is_internal,
        "messages": sum(part["messages"] for part in partitions),
        "partitions": partitions,
        "configs": {
            key: {"value": entry.value, "source": _source(entry)}
            for key, entry in sorted(found.items())
            if all_configs or _source(entry) != "default"
        },
    }


def show(shown: dict[str, Any], console: "Console") -> None:
    parts = shown["partitions"]
    counts = output.plural(len(parts), "partition"), output.plural(shown["messages"], "message")
    console.print(f"[bold]{shown['name']}[/bold]  {counts[0]}, {counts[1]}  [dim]id {shown['id']}[/dim]\n")
    drawn = output.table("PARTITION", "START", "END", "MESSAGES", "LEADER", "REPLICAS", "IN SYNC")
    for part in parts:
        numbers = (part[name] for name in ("start_offset", "end_offset", "messages"))
        nodes = (" ".join(map(str, part[name])) for name in ("replicas", "in_sync"))
        leader = "none" if part["leader"] is None else str(part["leader"])
        drawn.add_row(str(part["partition"]), *map(output.number, numbers), leader, *nodes)
    console.print(drawn)
    if not shown["configs"]:
        console.print("\nEvery setting is at its default.")
        return
    console.print()
    settings = output.table("SETTING", "VALUE", "FROM", texts=("VALUE", "FROM"))
    for name, config in shown["configs"].items():
        settings.add_row(name, units.explained(name, config["value"]), config["source"])
    console.print(settings)


def configs(brokers: Connection, admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    asked = [ConfigResource(ResourceType.TOPIC, name)]
    (future,) = admin.describe_configs(asked, request_timeout=REQUEST_SECONDS).values()
    found: dict[str, ConfigEntry] = brokers.result(future, f"the settings of {name} cannot be had")
    return found


def default_of(entry: ConfigEntry) -> str:
    """Returns the value that a topic has without a setting of its own."""
    if _source(entry) != "topic":
        return str(entry.value)
    for synonym in entry.synonyms.values():
        if _source(synonym) != "topic":
            return str(synonym.value)
    return "the default"


def _partitions(brokers: Connection, admin: AdminClient, name: str, described: list[Any]) -> list[dict[str, Any]]:
    partitions = [Partition(name, part.id) for part in described]
    offsets = Offsets(brokers, admin)
    start, end = offsets.earliest(partitions), offsets.latest(partitions)
    return [
        {
            "partition": part.id,
            "leader": part.leader.id if part.leader else None,
            "replicas": [node.id for node in part.replicas],
            "in_sync": [node.id for node in part.isr],
            "start_offset": start[Partition(name, part.id)],
            "end_offset": end[Partition(name, part.id)],
            "messages": end[Partition(name, part.id)] - start[Partition(name, part.id)],
        }
        for part in described
    ]


def _source(entry: ConfigEntry) -> str:
    return config_words.source(int(entry.source))  # type: ignore[call-overload]
