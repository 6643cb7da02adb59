"""Fixtures for pytest, available wherever tailrace is installed.

    tailrace_broker         a real broker, one for the whole session (with xdist: for each worker)
    tailrace_topic          the name of a topic that was made for this test alone
    tailrace_fresh_broker   a broker of this test's own

Nothing is imported, and nothing is started, before a test asks for it.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from tailrace.testing.broker import Broker

_NAME_MAX = 200


@pytest.fixture(scope="session")
def tailrace_broker() -> "Iterator[Broker]":
    """A broker that all tests of this session share: use topics of your own (`tailrace_topic`)."""
    from tailrace.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def tailrace_fresh_broker() -> "Iterator[Broker]":
    """A broker for this test alone."""
    from tailrace.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def tailrace_topic(request: pytest.FixtureRequest, tailrace_broker: "Broker") -> str:
    """The name of an empty topic with one partition on `tailrace_broker`, called after the test."""
    words = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name).strip("-")
    name = f"{words[:_NAME_MAX]}-{uuid4().hex[:8]}"
    tailrace_broker.create_topic(name)
    return name
