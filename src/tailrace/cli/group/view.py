"""Output of `tailrace group`: the rows of a list, or one group in full; as JSON, or for people."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import output
from tailrace.cli.common.client import (
    ClusterMetadata,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupType,
    MemberDescription,
)
from tailrace.cli.common.topics.offsets import Offsets, Partition, existing, partitions_of
from tailrace.cli.group import epochs, groups, share, stuck
from tailrace.cli.group.groups import Commits, Groups, Standing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH = 100
_STATES = {
    ConsumerGroupState.STABLE: "stable",
    ConsumerGroupState.EMPTY: "empty",
    ConsumerGroupState.DEAD: "dead",
    ConsumerGroupState.PREPARING_REBALANCING: "rebalancing",
    ConsumerGroupState.COMPLETING_REBALANCING: "rebalancing",
}


def rows(
    found: Groups, offsets: Offsets, metadata: ClusterMetadata, states: set[str], kinds: set[str]
) -> list[dict[str, Any]]:
    """Of groups in these states, and of these kinds; none is any."""
    listed = [
        group
        for group in found.listed()
        if (not states or state_of(group) in states) and (not kinds or kind_of(group) in kinds)
    ]
    names = [str(group.group_id) for group in listed]
    described, committed = found.described(names), found.committed(names)
    partitions = existing({partition for commits in committed.values() for partition in commits}, metadata)
    start, end = offsets.earliest(partitions), offsets.latest(partitions)
    return [
        {
            "name": name,
            "state": state_of(described[name]),
            "kind": kind_of(group),
            "members": len(described[name].members),
            "lag": _total(
                Standing(commit.offset, start[at], end[at]) for at, commit in committed[name].items() if at in end
            ),
        }
        for name, group in zip(names, listed, strict=True)
    ]


def table(shown: list[dict[str, Any]]) -> "Table":
    drawn = output.table("GROUP", "STATE", "KIND", "MEMBERS", "LAG", texts=("STATE", "KIND"))
    for row in shown:
        drawn.add_row(_clean(row["name"]), row["state"], row["kind"], output.number(row["members"]), _count(row["lag"]))
    return drawn


def details(
    offsets: Offsets, metadata: ClusterMetadata, group: ConsumerGroupDescription, commits: Commits
) -> dict[str, Any]:
    members, labels = group.members, groups.labels(group.members)
    owners = {at: str(member.member_id) for member in members for at in partitions_held(member)}
    topics = {partition.topic for partition in commits.keys() | owners.keys()}
    partitions = partitions_of(metadata, sorted(topics & metadata.topics.keys()))
    where = groups.standings(offsets, partitions, commits)
    return {
        "name": group.group_id,
        "state": state_of(group),
        "kind": kind_of(group),
        "assignor": group.partition_assignor or None,
        "coordinator": {"id": group.coordinator.id, "host": group.coordinator.host, "port": group.coordinator.port},
        "lag": _total(where.values()),
        "lost": sum(standing.lost for standing in where.values()),
        "members": [_member(member, labels[str(member.member_id)]) for member in members],
        "partitions": [_partition(at, standing, owners.get(at)) for at, standing in where.items()],
        "gone": [
            {"topic": at.topic, "partition": at.number, "committed": commits[at].offset}
            for at in sorted(commits.keys() - set(partitions))
        ],
    }


def show(shown: dict[str, Any], console: "Console") -> None:
    members, partitions = shown["members"], shown["partitions"]
    lag = ", nothing committed" if shown["lag"] is None else f", lag {_count(shown['lag'])}"
    console.print(_clean(shown["name"]), style="bold", end="")
    console.print(
        f"  {shown['state']}, {output.plural(len(members), 'member')}{'' if shown['kind'] == share.KIND else lag}"
    )
    at = shown["coordinator"]
    assignor = f"assignor {shown['assignor']}, " if shown["assignor"] else ""
    epoch = "" if shown["epoch"] is None else f"epoch {shown['epoch']}, {_phase(shown)}"
    console.print(
        f"{shown['kind']}, {epoch}{assignor}coordinator {at['host']}:{at['port']} (node {at['id']})", style="dim"
    )
    if members:
        console.print()
        output.draw(_members(members), console)
    if partitions:
        console.print()
        output.draw(_partitions(partitions, {member["id"]: member["label"] for member in members}), console)
    if said := remarks(shown):
        console.print()
    for line in said:
        console.print(line, soft_wrap=True)


def remarks(shown: dict[str, Any]) -> list[str]:
    """Returns what deserves attention, and what can be done about it."""
    partitions = shown["partitions"]
    return [
        *epochs.remarks(shown),
        *share.remarks(shown),
        *_idle(shown),
        *_never(partitions, has_members=bool(shown["members"])),
        *(
            f"{_place(row)}: {output.plural(row['lost'], 'message')} "
            f"({row['committed']} to {row['start'] - 1}) deleted by retention before the group read them"
            for row in partitions
            if row["lost"]
        ),
        *stuck.remarks(partitions),
        *(
            f"{_place(row)}: committed is {row['committed']}, but the log ends at {row['end']}"
            for row in partitions
            if row["committed"] is not None and row["committed"] > row["end"]
        ),
        *(f"{_place(row)}: committed is {row['committed']}, but the topic is gone" for row in shown["gone"]),
    ]


def commits(shown: Commits) -> "Table":
    metadata = any(commit.metadata for commit in shown.values())
    drawn = output.table("TOPIC", "PARTITION", "OFFSET", *(["METADATA"] if metadata else []), texts=("METADATA",))
    for at, commit in sorted(shown.items()):
        said = [_clean(commit.metadata)] if metadata else []
        drawn.add_row(at.topic, str(at.number), output.number(commit.offset), *said)
    return drawn


def commits_as_json(shown: Commits) -> list[dict[str, Any]]:
    return [
        {"topic": at.topic, "partition": at.number, "offset": commit.offset, "metadata": commit.metadata}
        for at, commit in sorted(shown.items())
    ]


def state_of(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    state: Any = group.state
    other = (
        "rebalancing" if group.type == ConsumerGroupType.CONSUMER else "unknown"
    )  # that protocol has more words for it
    return _STATES.get(state, other)


def kind_of(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    """classic or consumer, by the protocol of its members; simple, if it only ever was given offsets."""
    return "simple" if group.is_simple_consumer_group else str(group.type.name).lower()


def partitions_held(member: MemberDescription) -> list[Partition]:
    return sorted(Partition(place.topic, place.partition) for place in member.assignment.topic_partitions)


def _total(where: Iterable[Standing]) -> int | None:
    """The lag of all partitions; None where nothing was committed: where such a group will begin is not known."""
    known = [standing.lag for standing in where if standing.lag is not None]
    return sum(known) if known else None


def _member(member: MemberDescription, label: str) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "label": label,
        "client_id": member.client_id,
        "host": groups.host_of(member),
        "instance_id": member.group_instance_id,
        "partitions": [{"topic": at.topic, "partition": at.number} for at in partitions_held(member)],
    }


def _partition(partition: Partition, standing: Standing, owner: str | None) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "committed": standing.committed,
        "start": standing.start,
        "end": standing.end,
        "lag": standing.lag,
        "lost": standing.lost,
        "owner": owner,
    }


def _members(members: list[dict[str, Any]]) -> "Table":
    static = any(member["instance_id"] for member in members)
    headings = ("CLIENT", "HOST", *(("INSTANCE",) if static else ()), "PARTITIONS")
    drawn = output.table("MEMBER", *headings, texts=headings)
    for member in members:
        instance = (member["instance_id"] or "-",) if static else ()
        places = held(member["partitions"]) or ("none yet" if member["protocol"] == share.KIND else "none: idle")
        drawn.add_row(*map(_clean, (member["label"], member["client_id"], member["host"], *instance)), places)
    return drawn


def _partitions(partitions: list[dict[str, Any]], labels: dict[str, str]) -> "Table":
    drawn = output.table("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "OWNER", texts=("OWNER",))
    for row in partitions:
        committed = "never" if row["committed"] is None else output.number(row["committed"])
        numbers = map(output.number, (row["start"], row["end"]))
        owner = _clean(labels.get(row["owner"], "-"))
        drawn.add_row(row["topic"], str(row["partition"]), committed, *numbers, _count(row["lag"]), owner)
    return drawn


def _phase(shown: dict[str, Any]) -> str:
    if shown["phase"] == "assigning":
        return f"the target is of epoch {shown['assignment_epoch']}, "
    return "" if shown["phase"] == "stable" else f"{shown['phase']}, "


def held(places: list[dict[str, Any]]) -> str:
    """Returns partitions in the notation of options: `orders:0,1,2 payments:0`."""
    numbers: dict[str, list[str]] = {}
    for place in places:
        numbers.setdefault(place["topic"], []).append(str(place["partition"]))
    return " ".join(f"{topic}:{','.join(found)}" for topic, found in numbers.items())


def _idle(shown: dict[str, Any]) -> list[str]:
    members, partitions = shown["members"], shown["partitions"]
    idle = [member["label"] for member in members if not member["partitions"]]
    if not idle or shown["state"] != "stable" or shown["kind"] == share.KIND:  # its members share partitions
        return []
    names = f"{', '.join(map(_clean, idle[:5]))}{' …' if len(idle) > 5 else ''}"
    if len(idle) == len(members):
        return [f"No member has a partition ({names}): the topics that they subscribed to are not there."]
    counts = {row["topic"]: 0 for row in partitions if row["owner"]}
    for row in partitions:
        counts[row["topic"]] = counts.get(row["topic"], 0) + 1
    widest = max(counts, key=lambda topic: counts[topic])
    verb = "is" if len(idle) == 1 else "are"
    if counts[widest] >= len(members):
        return [f"{names} {verb} idle: every partition has another owner, or no partition is of a topic that it reads."]
    return [
        f"{names} {verb} idle: a partition has one owner, and {output.plural(len(members), 'member')} share "
        f"{output.plural(counts[widest], 'partition')} of {widest}.",
        f"  `tailrace topic alter {widest} --partitions {len(members)}` makes enough for all (keys may move to other "
        f"partitions); or stop {len(idle)} of them, unless they are to stand by.",
    ]


def _never(partitions: list[dict[str, Any]], *, has_members: bool) -> list[str]:
    never = [row for row in partitions if row["committed"] is None]
    if not never:
        return []
    names = f"{held(never[:8])}{' …' if len(never) > 8 else ''}"
    who = "an owner begins" if has_members else "members begin"
    return [f"Never committed, and not in the lag: {names}. There, {who} where auto.offset.reset says."]


def _place(row: dict[str, Any]) -> str:
    return str(Partition(row["topic"], row["partition"]))


def _clean(name: str) -> str:
    """Clients choose their names: no terminal is to take one for a command."""
    return output.short(name.encode(), _WIDTH)


def _count(value: int | None) -> str:
    return "-" if value is None else output.number(value)
