"""The port of the gateway: the one that was asked for, or the first free one from the default on."""

import socket
from contextlib import closing

import pytest

from tailrace.broker.core.api import Endpoint
from tailrace.server.children import http_port
from tailrace.server.children.http_port import NoPort, missing_packages, open_port
from tailrace.server.settings import HttpSettings


def settings(port: int, *, is_default: bool, host: str = "127.0.0.1") -> HttpSettings:
    return HttpSettings(Endpoint(host, port), is_default, "0123456789abcdef")


def test_a_taken_default_port_gives_way_to_the_next_free_one() -> None:
    with closing(open_port(settings(0, is_default=False))) as taken, socket.socket() as probe:
        port = taken.address[1]
        while probe.connect_ex(("127.0.0.1", port)) == 0:
            probe.close()
            probe = socket.socket()
            port += 1
        probe.close()
        with closing(open_port(settings(taken.address[1], is_default=True))) as found:
            assert found.address[1] > taken.address[1]


def test_a_taken_port_that_was_asked_for_is_an_error() -> None:
    with (
        closing(open_port(settings(0, is_default=False))) as taken,
        pytest.raises(NoPort, match=r"cannot listen on 127\.0\.0\.1:.* in use"),
    ):
        open_port(settings(taken.address[1], is_default=False))


def test_an_error_other_than_a_taken_port_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "PORTS_TRIED", 3)
    with pytest.raises(NoPort, match="not a valid host name"):
        open_port(settings(0, is_default=True, host="a..b"))


def test_the_search_ends_after_some_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "PORTS_TRIED", 1)
    with closing(open_port(settings(0, is_default=False))) as taken, pytest.raises(NoPort, match="in use"):
        open_port(settings(taken.address[1], is_default=True))


def test_clients_can_connect_before_the_gateway_runs() -> None:
    with closing(open_port(settings(0, is_default=False))) as port:
        socket.create_connection(port.address, timeout=5).close()
        assert port.token == "0123456789abcdef"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_packages() == []
    monkeypatch.setattr(http_port, "PACKAGES", ("starlette", "no_such_package"))
    assert missing_packages() == ["no_such_package"]
