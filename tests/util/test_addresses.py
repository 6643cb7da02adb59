"""Whether bootstrap addresses refuse connections, at ports of this machine."""

import socket
from collections.abc import Iterator

import pytest

from tailrace.util.addresses import all_refuse


@pytest.fixture
def port() -> Iterator[int]:
    """A port that something listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that is taken, and at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_addresses_refuse_where_nothing_listens_at_any_of_them(closed: int) -> None:
    assert all_refuse(f"127.0.0.1:{closed}")
    assert all_refuse(f"PLAINTEXT://127.0.0.1:{closed}, localhost:{closed}")


def test_one_address_that_accepts_is_enough(port: int, closed: int) -> None:
    assert not all_refuse(f"127.0.0.1:{closed},127.0.0.1:{port}")


@pytest.mark.parametrize("bootstrap", ["", " , ", "host.invalid:9092", "no address"])
def test_a_name_that_may_be_resolved_later_does_not_refuse(bootstrap: str) -> None:
    assert not all_refuse(bootstrap)
