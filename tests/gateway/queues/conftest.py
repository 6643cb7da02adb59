"""Queues over HTTP: each test has a group and a topic of its own."""

import secrets
from collections.abc import Callable
from typing import Any

import httpx
import pytest


class HttpQueue:
    """The verbs of one queue."""

    def __init__(self, http: httpx.Client, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self._http = http

    def post(self, verb: str, **body: Any) -> httpx.Response:
        return self._http.post(f"/v1/queues/{self.group}/{self.topic}/{verb}", json=body)

    def lease(self, **body: Any) -> list[dict[str, Any]]:
        response = self.post("lease", **body)
        assert response.status_code == 200, response.text
        messages: list[dict[str, Any]] = response.json()["messages"]
        return messages

    def done(self, verb: str, *leases: str, **body: Any) -> tuple[int, list[dict[str, str]]]:
        response = self.post(verb, leases=list(leases), **body)
        assert response.status_code in (200, 409), response.text
        found = response.json()
        assert response.status_code == (200 if found["done"] else 409)
        return found["done"], found["failed"]


NewQueue = Callable[..., HttpQueue]


@pytest.fixture
def new_queue(http: httpx.Client, new_topic: Callable[..., str]) -> NewQueue:
    """Makes a topic with these values, and a queue of it."""

    def new_queue(*values: str, partitions: int = 1) -> HttpQueue:
        topic = new_topic(partitions)
        if values:
            response = http.post(f"/v1/topics/{topic}", json={"messages": [{"value": value} for value in values]})
            assert response.status_code == 200, response.text
        return HttpQueue(http, f"workers-{secrets.token_hex(4)}", topic)

    return new_queue


def failed(*leases: str, reason: str) -> list[dict[str, str]]:
    return [{"lease": lease, "reason": reason} for lease in leases]
