"""Epochs and targets of a consumer group (KIP-848), which the admin client of confluent-kafka does not have."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tailrace.cli.common.connection import Connection

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import ConsumerGroup

_PHASES = {"Assigning": "assigning", "Reconciling": "reconciling"}

Place = tuple[str, int]


def add(shown: dict[str, Any], brokers: Connection) -> None:
    """Adds epochs, phase and targets to a group as `view.details` has it: None for a classic group."""
    found = _described(shown["name"], brokers) if shown["kind"] == "consumer" else None
    shown["epoch"] = found.epoch if found is not None else None
    shown["assignment_epoch"] = found.assignment_epoch if found is not None else None
    shown["phase"] = _PHASES.get(found.state, "stable") if found is not None else None
    for row in shown["members"]:
        member = found.members.get(row["id"]) if found is not None else None
        row["protocol"] = "classic" if member is None or member.is_classic else "consumer"
        row["epoch"] = row["target"] = row["revoking"] = None
        if member is not None:
            row["epoch"] = member.epoch
            row["target"] = _rows(member.target)
            row["revoking"] = _rows(set(member.assignment) - set(member.target))


def _described(name: str, brokers: Connection) -> "ConsumerGroup | None":
    from tailrace.cli.common.admin_requests import AdminRequests

    with AdminRequests(brokers) as requests:
        return requests.consumer_group(name)


def _rows(places: Iterable[Place]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(places)]


def remarks(shown: dict[str, Any]) -> list[str]:
    """Who has yet to give up what, so that others can have it."""
    from tailrace.cli.group.view import held

    waiting = [(row["label"], row["revoking"]) for row in shown["members"] if row.get("revoking")]
    return [f"{label} has yet to give up {held(places)}: other members wait for that." for label, places in waiting]
