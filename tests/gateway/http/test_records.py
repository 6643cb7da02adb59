"""Requests are counted, and logged as JSON if that is wanted; an unexpected error is a problem, and not the end."""

import json
import socket
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from gateway.conftest import problem_of
from gateways import RunningGateway
from server.test_http import parse
from waits import until

from tailrace.gateway.http import bodies
from tailrace.gateway.topics.catalog import Catalog


def test_requests_are_counted_by_route_and_not_by_name() -> None:
    with RunningGateway() as gateway:
        for path in ("/healthz", "/v1/topics/a%20b", "/v1/topics/c%20d", "/v1/groups/", "/x", "/y"):
            httpx.get(f"{gateway.url}{path}")
        httpx.request("BREW", f"{gateway.url}/healthz")
        httpx.get(f"{gateway.url}/healthz", headers={"Host": "evil.example"})
        samples = parse(httpx.get(f"{gateway.url}/metrics").text)
    assert samples["tailrace_http_requests_total"] == {
        'method="GET",route="/healthz",status="200"': 1,
        'method="GET",route="/v1/groups/{group}",status="400"': 1,
        'method="GET",route="/v1/topics/{topic}",status="400"': 2,
        'method="GET",route="other",status="403"': 1,
        'method="GET",route="other",status="404"': 2,
    }
    assert samples["tailrace_http_request_duration_seconds_count"]['route="/v1/topics/{topic}"'] == 2
    assert samples["tailrace_http_waiting"] == {"": 0}


def test_the_access_log_is_json_with_one_line_for_each_request(capfd: pytest.CaptureFixture[str]) -> None:
    with RunningGateway(configs={"tailrace.http.access.log": "true"}) as gateway:
        httpx.get(f"{gateway.url}/healthz?a=%22%0Ab", headers={"Authorization": "Bearer secret"})
        httpx.get(f"{gateway.url}/v1/topics/x%0Ay")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"url"' in line]
    first, second = lines
    assert first["time"].startswith("20")
    assert (first["method"], first["url"], first["status"], first["bytes"]) == ("GET", "/healthz?a=%22%0Ab", 200, 3)
    assert first["client"] == "127.0.0.1"
    assert first["ms"] >= 0
    assert (second["url"], second["status"]) == ("/v1/topics/x\ny", 400)
    assert "secret" not in json.dumps(lines)


def test_no_access_log_is_written_unless_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with RunningGateway() as gateway:
        httpx.get(f"{gateway.url}/healthz")
    assert "/healthz" not in capfd.readouterr().err


def test_an_unexpected_error_is_logged_and_told_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Catalog, "_list", fail)
    monkeypatch.setattr("logging.Logger.propagate", True, raising=False)
    with RunningGateway() as gateway:
        response = httpx.get(f"{gateway.url}/v1/topics")
        assert problem_of(response) == (500, "internal-error")
        assert "secret" not in response.text
        assert httpx.get(f"{gateway.url}/healthz").status_code == 200


def test_without_a_broker_requests_end_with_unavailable() -> None:
    from tailrace.client.options import ClientOptions

    with RunningGateway() as gateway:
        options = gateway.gateway.kafka.cluster.options
        impatient = ClientOptions(
            **{**{name: getattr(options, name) for name in options.__slots__}, "retry_timeout_s": 1.0}
        )
        gateway.gateway.kafka.cluster.options = impatient
        assert problem_of(httpx.get(f"{gateway.url}/v1/topics", timeout=30)) == (503, "unavailable")
        assert httpx.get(f"{gateway.url}/readyz", timeout=30).status_code == 503


def test_a_body_that_does_not_come_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.3)
    head = (
        b"POST /v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    with RunningGateway() as gateway, socket.create_connection(gateway.address, timeout=20) as client:
        client.sendall(head)
        received = b""
        while b"request-timeout" not in received:
            part = client.recv(1000)
            assert part, received
            received += part
        assert received.startswith(b"HTTP/1.1 408 ")
        assert gateway.on_loop(lambda: gateway.gateway.metrics.page()).count("tailrace_http_bodies_bytes 0\n") == 1


def test_bodies_are_bounded_together_by_what_has_arrived() -> None:
    head = b"POST /v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with RunningGateway(configs={"tailrace.http.body.max.bytes": "1024"}) as gateway, ExitStack() as opened:

        def held(count: int) -> bool:
            page = gateway.on_loop(lambda: gateway.gateway.metrics.page())
            return f"tailrace_http_bodies_bytes {count}\n" in page

        def send(arriving: bytes) -> None:
            client = opened.enter_context(socket.create_connection(gateway.address, timeout=20))
            client.sendall(head + b"Content-Length: 1024\r\n\r\n" + arriving)

        for _ in range(3 * bodies.TOGETHER):
            send(b"")  # announces much, and sends nothing
        for _ in range(bodies.TOGETHER):
            send(b"x" * 1020)
        until(lambda: held(bodies.TOGETHER * 1020))
        response = httpx.post(f"{gateway.url}/v1/topics/x", content=b" " * 1000, headers={"content-type": "a/b"})
        assert problem_of(response) == (429, "too-many-requests")
        opened.close()
        until(lambda: held(0))
