"""`tailrace group` and share groups: listed, shown, deleted, and refused where there are no committed offsets."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tailrace.testing.raw_client import RawClient

Run = Callable[..., tuple[str, str]]
Beat = Callable[..., Any]


@pytest.fixture
def beat(bootstrap: str) -> Iterator[Beat]:
    """Sends the heartbeat of a member: it joins, unless an epoch is given."""
    host, _, port = bootstrap.rpartition(":")
    clients: dict[str, RawClient] = {}

    def beat(group: str, member: str, *topics: str, epoch: int = 0, client: str = "worker") -> Any:
        connection = clients.get(client)
        if connection is None:
            connection = clients[client] = RawClient((host, int(port)), client_id=client)
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        answer = connection.ask(request, 1)
        assert not answer.error_code, answer
        return answer

    yield beat
    for connection in clients.values():
        connection.close()


def rows(run: Run, *arguments: str) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(run("group", "list", "--json", *arguments)[0])}


def test_share_groups_are_listed_among_the_others(run: Run, unused: str, ten: str, beat: Beat, join: Any) -> None:
    beat(unused, "a", ten)
    beat(unused, "b", ten)
    expected = {"name": unused, "state": "stable", "kind": "share", "members": 2, "lag": None}
    assert rows(run)[unused] == expected
    assert rows(run, "--kind", "share", "--state", "stable")[unused] == expected
    assert unused not in rows(run, "--kind", "consumer", "--kind", "classic")
    assert unused not in rows(run, "--state", "empty")
    assert unused not in rows(run, "--lagging")
    said = run("group", "list", "--kind", "share")[0]
    assert [unused, "stable", "share", "2", "-"] in [line.split() for line in said.splitlines()]


def test_a_share_group_is_shown_with_its_members(run: Run, unused: str, ten: str, beat: Beat) -> None:
    beat(unused, "11112222-first", ten)
    beat(unused, "33334444-second", ten)
    beat(unused, "third", ten, client="other")
    found = json.loads(run("group", "show", unused, "--json")[0])
    assert (found["state"], found["kind"], found["assignor"], found["lag"]) == ("stable", "share", "simple", None)
    assert found["epoch"] == 3
    assert sorted(member["label"] for member in found["members"]) == ["other", "worker-11112222", "worker-33334444"]
    assert {member["protocol"] for member in found["members"]} == {"share"}
    assert found["members"][0]["partitions"] == [{"topic": ten, "partition": 0}]
    said = run("group", "show", unused)[0]
    assert said.splitlines()[0] == f"{unused}  stable, 3 members"
    assert "idle" not in said
    assert f"`tailrace queue show {unused}`" in said


def test_a_share_group_is_deleted_once_it_has_no_members(run: Run, unused: str, ten: str, beat: Beat) -> None:
    beat(unused, "a", ten)
    refused = run("group", "delete", unused, "--yes", code=5)[1]
    assert f"nothing was deleted: group {unused} has 1 member (worker)" in refused
    beat(unused, "a", epoch=-1)
    assert "no committed offsets" in run("group", "delete", unused, "--offsets", ten, "--yes", code=5)[1]
    assert "would delete share group" in run("group", "delete", unused, "--dry-run")[0]
    assert "deleted share group" in run("group", "delete", unused, "--yes")[0]
    assert unused not in rows(run)
    assert "there is no group" in run("group", "show", unused, code=4)[1]


@pytest.mark.parametrize("arguments", [("reset", "--to", "latest"), ("copy", "other")])
def test_what_needs_committed_offsets_is_refused(
    run: Run, unused: str, ten: str, beat: Beat, arguments: tuple[str, ...]
) -> None:
    beat(unused, "a", ten)
    verb, *rest = arguments
    said = run("group", verb, unused, *rest, code=5)[1]
    assert f"{unused} is a share group, which has no committed offsets" in said


def test_configs_of_share_groups_are_set(run: Run, unused: str) -> None:
    said = run("group", "set", unused, "--set", "share.record.lock.duration.ms=45s")[0]
    assert "share.record.lock.duration.ms" in said
    assert "cannot be" in run("group", "set", unused, "--set", "share.delivery.count.limit=11", code=5)[1]
