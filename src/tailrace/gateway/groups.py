"""GET /v1/groups and /v1/groups/{group}: consumer groups, their members, and how far they have read."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tailrace.client import groups
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import NotOffered
from tailrace.client.groups import Committed
from tailrace.client.offsets import readable_bounds
from tailrace.client.options import Isolation
from tailrace.client.share import groups as share_groups
from tailrace.client.share import offsets as share_offsets
from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.parameters import integer, string
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.http.replies import reply
from tailrace.gateway.kafka.kafka import Kafka

NAME_LENGTH_MAX = 1000

_NAME = string("group", "The name of the group.", NAME_LENGTH_MAX, length_min=1)
_MAX = integer("max", "How many groups to return.", 1, 10_000, 1000)
_AFTER = string("after", "Return groups whose names come after this one.", NAME_LENGTH_MAX, "")
_GROUPS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "state": {"type": "string"},
                    "type": {"type": "string", "description": "classic, consumer or share; empty if unknown."},
                },
                "required": ["name", "state", "type"],
            },
        },
        "next": {"type": ["string", "null"], "description": "`after` of the next request; null at the end."},
    },
    "required": ["groups", "next"],
}
_GROUP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "state": {"type": "string"},
        "type": {"type": "string"},
        "members": {"type": "array", "items": {"type": "string"}, "description": "The ids of its members."},
        "partitions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "topic": {"type": "string"},
                    "partition": {"type": "integer"},
                    "committed": {"type": "integer", "description": "The next offset that the group reads."},
                    "end": {"type": ["integer", "null"], "description": "Null if the partition cannot be read."},
                    "lag": {"type": ["integer", "null"], "description": "Messages that the group has not read."},
                },
                "required": ["topic", "partition", "committed", "end", "lag"],
            },
        },
    },
    "required": ["name", "state", "type", "members", "partitions"],
}


class Groups:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/v1/groups",
                self._list,
                "List groups",
                "In the order of their names.",
                _GROUPS,
                parameters=[_MAX, _AFTER],
                problems=["bad-request", "too-many-requests", "unavailable"],
                tag="groups",
            ),
            Endpoint(
                "GET",
                "/v1/groups/{group}",
                self._show,
                "Show a group",
                "Its members, and how far it has read. Lag counts up to the last committed message.",
                _GROUP,
                path_parameters=[_NAME],
                problems=["bad-request", "group-not-found", "too-many-requests", "unavailable"],
                tag="groups",
            ),
        ]

    async def _list(self, _: Request, values: dict[str, Any]) -> Response:
        listed = await self._kafka.threads.run(lambda: groups.listed(self._kafka.cluster))
        found = {one.group_id: one for of_broker in listed.values() for one in of_broker}
        names = sorted(name for name in found if name > values["after"])
        shown = [found[name] for name in names[: values["max"]]]
        rows = [{"name": one.group_id, "state": one.group_state, "type": one.group_type} for one in shown]
        return reply({"groups": rows, "next": names[len(shown) - 1] if len(shown) < len(names) else None})

    async def _show(self, request: Request, _: dict[str, Any]) -> Response:
        name = request.path_params["group"]
        found = await self._kafka.threads.run(lambda: describe(self._kafka.cluster, name))
        if found is None:
            raise Problem("group-not-found", f"there is no group {name!r}")
        return reply(found)


def describe(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Describes a group, in a thread; None if there is no such group. Raises ClientError."""
    shown: dict[str, Any]
    if (classic := groups.describe_classic_group(cluster, name)) is not None:
        members = [one.member_id for one in classic.members]
        shown = {"name": name, "state": classic.state, "type": "classic", "members": members}
    else:
        try:
            consumer = groups.describe_consumer_group(cluster, name)
        except NotOffered:
            consumer = None
        if consumer is None:
            return describe_queue(cluster, name)
        shown = {"name": name, "state": consumer.state, "type": "consumer", "members": sorted(consumer.members)}
    committed = groups.committed(cluster, name)
    bounds = readable_bounds(cluster, list(committed), Isolation.READ_COMMITTED)
    return {**shown, "partitions": [_row(place, committed, bounds) for place in sorted(committed)]}


def describe_queue(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """The same for a share group. What is committed is where it starts: all before is finished."""
    group = share_groups.describe(cluster, name)
    if group is None:
        return None
    found = {at: one for at, one in share_offsets.offsets(cluster, name).items() if one.start is not None}
    bounds = readable_bounds(cluster, list(found), Isolation.READ_COMMITTED)
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "committed": found[at].start,
            "end": bounds[at][1] if at in bounds else None,
            "lag": found[at].unfinished,
        }
        for at in sorted(found)
    ]
    members = sorted(member.member_id for member in group.members)
    return {"name": name, "state": group.state, "type": "share", "members": members, "partitions": rows}


def _row(
    place: TopicPartition,
    committed: Mapping[TopicPartition, Committed],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> dict[str, Any]:
    offset = committed[place].offset
    start, end = bounds.get(place, (None, None))
    lag = None if start is None or end is None else max(0, end - max(offset, start))
    return {"topic": place.topic, "partition": place.partition, "committed": offset, "end": end, "lag": lag}
