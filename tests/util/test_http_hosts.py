"""Hosts that an HTTP request may name: loopback, the bound name, configured ones, and the address itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.util.http_hosts import AllowedHosts, host_in, refusal

HOSTS = AllowedHosts("broker.example", ["Other.Example", "10.0.0.9"])


@pytest.mark.parametrize(
    ("header", "local"),
    [
        ("localhost", "127.0.0.1"),
        ("LocalHost:9080", "127.0.0.1"),
        ("127.0.0.1:9080", "127.0.0.1"),
        ("[::1]:9080", "::1"),
        ("broker.example:80", "10.0.0.7"),
        ("other.example", "10.0.0.7"),
        ("10.0.0.9:1", "10.0.0.7"),
        ("10.0.0.7:9080", "10.0.0.7"),
        ("[fd00::7]:9080", "fd00:0::7"),
        (" localhost ", "127.0.0.1"),
    ],
)
def test_known_hosts_are_allowed(header: str, local: str) -> None:
    assert HOSTS.allows(header, local)


@pytest.mark.parametrize(
    "header",
    [None, "", ":9080", "evil.example", "localhost.evil.example", "10.0.0.8", "127.0.0.2", "[::2]", "a@localhost",
     "localhost@evil.example", "127.1", "2130706433", "0x7f.1"],
)  # fmt: skip
def test_other_hosts_are_refused(header: str | None) -> None:
    assert not HOSTS.allows(header, "10.0.0.7")
    assert refusal(header)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_breaks_it(header: str, local: str) -> None:
    HOSTS.allows(header, local)
    assert len(host_in(header)) <= 40
