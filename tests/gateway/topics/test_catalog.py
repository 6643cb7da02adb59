"""GET /v1/topics, /v1/topics/{topic}, /v1/groups and /v1/groups/{group}."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from cli.lag.conftest import commit
from confluent_kafka import Consumer
from gateway.conftest import OURS, problem_of
from waits import until

__all__ = ["commit"]

Post = Callable[..., list[dict[str, int]]]


def test_topics_are_listed_in_pages(http: httpx.Client, new_topic: Callable[..., str]) -> None:
    names = sorted([new_topic(3), new_topic(), new_topic()])
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = http.get("/v1/topics", params={"max": 2, "after": after}).json()
        assert len(page["topics"]) <= 2
        found += page["topics"]
        if page["next"] is None:
            break
        after = page["next"]
    listed = [one["name"] for one in found]
    assert listed == sorted(set(listed))
    assert set(names) <= set(listed)
    assert sorted(one["partitions"] for one in found if one["name"] in names) == [1, 1, 3]


def test_a_topic_is_shown(http: httpx.Client, new_topic: Callable[..., str], post: Post) -> None:
    topic = new_topic(2)
    post(topic, {"value": "a", "partition": 1}, {"value": "b", "partition": 1})
    assert http.get(f"/v1/topics/{topic}").json() == {
        "name": topic,
        "internal": False,
        "partitions": [{"partition": 0, "start": 0, "end": 0}, {"partition": 1, "start": 0, "end": 2}],
    }
    assert problem_of(http.get("/v1/topics/never-there")) == (404, "topic-not-found")
    assert problem_of(http.get("/v1/topics/bad%20name")) == (400, "bad-request")


def test_a_group_of_offsets_is_listed_and_shown(
    http: httpx.Client, new_topic: Callable[..., str], post: Post, commit: Callable[[str, str, int], None]
) -> None:
    topic = new_topic()
    post(topic, *({"value": str(n)} for n in range(5)))
    group = f"group/of {topic}"
    commit(group, topic, 2)
    listed = http.get("/v1/groups", params={"max": 10_000}).json()["groups"]
    assert [one["state"] for one in listed if one["name"] == group] == ["Empty"]
    assert http.get(f"/v1/groups/{quote(group, safe='')}").json() == {
        "name": group,
        "state": "Empty",
        "type": "classic",
        "members": [],
        "partitions": [{"topic": topic, "partition": 0, "committed": 2, "end": 5, "lag": 3}],
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_shown(
    http: httpx.Client, bootstrap: str, new_topic: Callable[..., str], post: Post, protocol: str
) -> None:
    topic = new_topic()
    post(topic, {"value": "x"})
    group = f"members-of-{topic}"
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1), 30)
        consumer.commit(asynchronous=False)
        shown = http.get(f"/v1/groups/{group}").json()
    finally:
        consumer.close()
    assert (shown["type"], shown["state"], len(shown["members"])) == (protocol, "Stable", 1)
    assert shown["partitions"] == [{"topic": topic, "partition": 0, "committed": 1, "end": 1, "lag": 0}]


def test_a_group_that_is_not_there_is_not_found(http: httpx.Client) -> None:
    assert problem_of(http.get("/v1/groups/never-there")) == (404, "group-not-found")
    assert problem_of(http.get("/v1/groups?max=0")) == (400, "bad-request")


@OURS
def test_unknown_pages_are_problems_too(http: httpx.Client) -> None:
    for path in ("/", "/v1", "/v1/", "/v1/topic", "/v1/topics/", "/v1/topics/a/b", "/v1/topics/a/messages/"):
        assert problem_of(http.get(path))[0] in (400, 404), path
    assert problem_of(http.delete("/v1/topics")) == (405, "method-not-allowed")
    assert http.head("/v1/topics").status_code == 200
