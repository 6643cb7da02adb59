"""A broker with short locks for the verbs of queues, and topics with messages to work on."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from broker_process import BrokerProcess
from queues import SHARE_SETTINGS

Run = Callable[..., tuple[str, str]]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get("TAILRACE_TEST_BOOTSTRAP"):
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("queues") / "data", configs=SHARE_SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def is_ours(bootstrap: str) -> bool:
    return not os.environ.get("TAILRACE_TEST_BOOTSTRAP")


@pytest.fixture
def write(bootstrap: str) -> Callable[..., None]:
    """Writes messages, one after the other, to partition 0 unless told otherwise."""
    from confluent_kafka import Producer

    def write(topic: str, *values: str | None, partition: int = 0, key: str | bytes | None = None, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value, key, partition, **more)
        assert producer.flush(20) == 0

    return write


@pytest.fixture
def queue(run: Run, new_topic: Callable[..., str], unused: str) -> Callable[..., tuple[str, str]]:
    """Makes a queue of a new topic with some messages; returns its name, and the topic's."""

    def queue(*values: str, options: Sequence[str] = (), partitions: int = 1) -> tuple[str, str]:
        topic = new_topic(partitions)
        if values:
            run("produce", topic, "--partition", "0", given="".join(f"{value}\n" for value in values).encode())
        run("queue", "create", unused, topic, *options)
        return unused, topic

    return queue


@pytest.fixture
def shown(run: Run) -> Callable[[str], dict[str, Any]]:
    def shown(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run("queue", "show", name, "--json")[0])
        return found

    return shown
