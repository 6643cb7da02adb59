"""Gateways for the tests: in front of a broker of ours, and of Apache Kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from cli.conftest import admin, new_topic
from cli.lag.conftest import bootstrap, is_ours
from gateways import RunningGateway

__all__ = ["admin", "bootstrap", "is_ours", "new_topic"]

OURS = pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is missing is looked for a moment less."""
    monkeypatch.setattr("tailrace.client.cluster.cluster.PATIENCE_S", 0.3)


@pytest.fixture(scope="session")
def gateway(bootstrap: str) -> Iterator[RunningGateway]:
    with RunningGateway(bootstrap) as gateway:
        yield gateway


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=40) as client:
        yield client


@pytest.fixture
def post(http: httpx.Client) -> Callable[..., Any]:
    """Writes messages, and returns where they are."""

    def post(topic: str, *messages: object) -> list[dict[str, int]]:
        response = http.post(f"/v1/topics/{topic}", json={"messages": list(messages)})
        assert response.status_code == 200, response.text
        placed: list[dict[str, int]] = response.json()["messages"]
        return placed

    return post


@pytest.fixture
def read(http: httpx.Client) -> Callable[..., Any]:
    """Reads a page."""

    def read(topic: str, **parameters: object) -> dict[str, Any]:
        given = {"from" if name == "start" else name: str(value) for name, value in parameters.items()}
        response = http.get(f"/v1/topics/{topic}/messages", params=given)
        assert response.status_code == 200, response.text
        page: dict[str, Any] = response.json()
        return page

    return read


def problem_of(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem, which has all that a problem has to have."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["title"]
    assert body["detail"]
    return response.status_code, body["type"].removeprefix("/problems/")
