"""Connections with limits: slow, large and many requests cost a bounded time and memory."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from gateways import RunningGateway
from waits import until

from tailrace.gateway.http import connection
from tailrace.gateway.http.connection import HEAD_BYTES_MAX, PIPELINED_MAX, Limits

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    with RunningGateway() as gateway:
        yield gateway


def connected(gateway: RunningGateway) -> socket.socket:
    return socket.create_connection(gateway.address, timeout=20)


def answer(client: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    received = b""
    with suppress(ConnectionError):
        while part := client.recv(1 << 16):
            received += part
    return received


def open_connections(gateway: RunningGateway) -> int:
    return gateway.on_loop(lambda: gateway.gateway._server.connections)


def test_requests_of_one_connection_are_answered_in_order(gateway: RunningGateway) -> None:
    with connected(gateway) as client:
        client.sendall(GET * 2 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer(client).count(b"200 OK") == 3


def test_a_silent_client_and_a_slow_head_are_cut_off(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.5)
    with connected(gateway) as silent, connected(gateway) as slow, connected(gateway) as second:
        slow.sendall(GET[:10])
        second.sendall(GET)
        assert second.recv(1000).startswith(b"HTTP/1.1 200 OK")
        second.sendall(GET[:10])
        assert [answer(client) for client in (silent, slow, second)] == [b"", b"", b""]
    until(lambda: open_connections(gateway) == 0)


def test_a_body_that_never_ends_is_cut_off(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MESSAGE_S", 0.5)
    with connected(gateway) as client:
        client.sendall(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000\r\n\r\n") + b"x")
        assert b"200 OK" in answer(client)
    until(lambda: open_connections(gateway) == 0)


@pytest.mark.parametrize("part", [b"a: b\r\n", b"x" * 100])
def test_an_endless_head_is_cut_off(gateway: RunningGateway, part: bytes) -> None:
    with connected(gateway) as client:
        client.sendall(GET[:-2] + b"X-Long: ")
        with suppress(ConnectionError):
            for _ in range(10 * HEAD_BYTES_MAX // len(part)):
                client.sendall(part)
        assert b"200" not in answer(client)
    until(lambda: open_connections(gateway) == 0)


def test_endless_trailers_are_cut_off(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.BoundedConnection, "limits", Limits(10, 100_000))
    with RunningGateway(configs={"tailrace.http.body.max.bytes": "1024"}) as small, connected(small) as client:
        client.sendall(GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
        with suppress(ConnectionError):
            for _ in range(1000):
                client.sendall(b"X-Trailer: " + b"x" * 1000 + b"\r\n")
        answer(client)
        until(lambda: open_connections(small) == 0)


def test_many_pipelined_requests_are_refused(gateway: RunningGateway) -> None:
    with connected(gateway) as client:
        client.sendall(GET * (PIPELINED_MAX * 4))
        assert answer(client).count(b"200 OK") < PIPELINED_MAX * 4


def test_a_client_that_does_not_read_is_cut_off(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WRITE_S", 0.5)
    big = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    gateway.on_loop(lambda: gateway.gateway.metrics.gauge("x" * (16 << 20), "Long.", lambda: 1.0))
    with connected(gateway) as deaf:
        deaf.sendall(big)
        until(lambda: open_connections(gateway) == 1)
        until(lambda: open_connections(gateway) == 0)


def test_connections_beyond_the_limit_are_closed_and_others_are_served() -> None:
    with RunningGateway(configs={"tailrace.http.waiting.max": "0"}) as gateway, ExitStack() as opened:
        limit = connection_limit(gateway)
        clients = [opened.enter_context(connected(gateway)) for _ in range(limit)]
        until(lambda: open_connections(gateway) == limit)
        with connected(gateway) as further:
            assert answer(further) == b""
        clients[0].sendall(GET)
        assert clients[0].recv(1000).startswith(b"HTTP/1.1 200 OK")
        clients.pop().close()
        until(lambda: open_connections(gateway) < limit)
        with connected(gateway) as later:
            later.sendall(GET)
            assert later.recv(1000).startswith(b"HTTP/1.1 200 OK")


def connection_limit(gateway: RunningGateway) -> int:
    protocol = gateway.gateway._server._server.config.http
    assert issubclass(protocol, connection.BoundedConnection)  # type: ignore[arg-type]
    return protocol.limits.connections  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"\0\xff\xff\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
    ],
)
def test_broken_requests_are_refused_and_the_next_client_is_served(
    gateway: RunningGateway, request_bytes: bytes
) -> None:
    with connected(gateway) as client:
        client.sendall(request_bytes)
        client.shutdown(socket.SHUT_WR)
        received = answer(client)
        assert not received or received.split(b" ")[1] in (b"400", b"403", b"413")
    with connected(gateway) as client:
        client.sendall(GET)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
