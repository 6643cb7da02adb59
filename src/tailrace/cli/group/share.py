"""Share groups in `tailrace group`: the admin client of confluent-kafka does not list them as groups.

They have no committed offsets: how far such a queue is, and what is wrong with it, is shown by `tailrace queue`.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import output
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import ShareGroup, ShareGroupMember

KIND = "share"


def rows(brokers: Connection, states: set[str]) -> list[dict[str, Any]]:
    """Of share groups in these states; none is any."""
    from tailrace.cli.common.admin_requests import AdminRequests

    with AdminRequests(brokers) as requests:
        found = requests.share_groups()
    return [
        {"name": one.name, "state": one.state.lower(), "kind": KIND, "members": len(one.members), "lag": None}
        for one in found
        if not states or one.state.lower() in states
    ]


def find(brokers: Connection, name: str) -> "ShareGroup | None":
    from tailrace.cli.common.admin_requests import AdminRequests

    with AdminRequests(brokers) as requests:
        return requests.share_group(name)


def details(group: "ShareGroup", coordinator: Any) -> dict[str, Any]:
    """Returns a share group with the keys that `view.details` and `epochs.add` give to others."""
    labels = _labels(group.members)
    return {
        "name": group.name,
        "state": group.state.lower(),
        "kind": KIND,
        "assignor": group.assignor or None,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "lag": None,
        "lost": 0,
        "members": [_member(member, labels[member.member_id]) for member in group.members],
        "partitions": [],
        "gone": [],
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "phase": "assigning" if group.members and group.assignment_epoch < group.epoch else "stable",
    }


def remarks(shown: dict[str, Any]) -> list[str]:
    """Returns where to read on about a share group."""
    if shown["kind"] != KIND:
        return []
    return [f"`tailrace queue show {shown['name']}` shows its backlog, attempts and dead letters."]


def _member(member: "ShareGroupMember", label: str) -> dict[str, Any]:
    places = [{"topic": at.topic, "partition": at.partition} for at in member.assignment]
    return {
        "id": member.member_id,
        "label": label,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": None,
        "partitions": places,
        "protocol": KIND,
        "epoch": member.epoch,
        "target": None,
        "revoking": None,
    }


def _labels(members: "list[ShareGroupMember]") -> dict[str, str]:
    """Returns labels of members by their ids, as short as distinguishes them."""
    clients = Counter(member.client_id for member in members)
    names = {
        member.member_id: member.client_id
        if clients[member.client_id] == 1
        else f"{member.client_id}-{member.member_id[:8]}"
        for member in members
    }
    return names if len(set(names.values())) == len(names) else {member_id: member_id for member_id in names}


def refuse(brokers: Connection, name: str) -> None:
    """Refuses what needs committed offsets, if the group is a share group."""
    if find(brokers, name) is not None:
        raise Failure(
            f"{name} is a share group, which has no committed offsets\n"
            f"  `tailrace queue show {name}` shows where it stands",
            ExitCode.REFUSED,
        )


def require_no_members(group: "ShareGroup", doing: str) -> None:
    """Refuses while the group has members."""
    if not group.members:
        return
    labels = list(_labels(group.members).values())
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    raise Failure(
        f"{doing}: group {group.name} has {output.plural(len(labels), 'member')} ({', '.join(labels[:5])}{more})\n"
        "  stop them first, then try again; one that was killed counts until its session times out, mostly 45 s",
        ExitCode.REFUSED,
    )
