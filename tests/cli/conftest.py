"""A broker for the verbs to talk to, and the verbs run as a user runs them.

The broker is ours, started for the tests; where TAILRACE_TEST_BOOTSTRAP names another, such as Apache Kafka, it is that
one.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from broker_process import BrokerProcess

COMMAND = [sys.executable, "-m", "tailrace"]


@contextmanager
def our_broker(directory: Path, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, BrokerProcess]]:
    """A broker of ours, with its data in `directory`: its address, and its process."""
    with BrokerProcess(directory, configs={"group.initial.rebalance.delay.ms": "0"}, listen=listen) as broker:
        yield broker.bootstrap, broker


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get("TAILRACE_TEST_BOOTSTRAP"):
        yield given
        return
    with our_broker(tmp_path_factory.mktemp("broker") / "data") as (address, _):
        yield address


@pytest.fixture
def own_broker() -> Callable[..., Any]:
    """For tests that start and end brokers themselves."""
    if os.environ.get("TAILRACE_TEST_BOOTSTRAP"):
        pytest.skip("another broker is tested, and is not ours to end")
    return our_broker


class Run(Protocol):
    """Runs a verb, expects an exit code, and gives what was written to stdout and to stderr."""

    def __call__(
        self, *arguments: object, code: int = 0, given: bytes | None = None, environment: dict[str, str] | None = None
    ) -> tuple[str, str]: ...


@pytest.fixture
def environment(bootstrap: str, tmp_path: Path) -> dict[str, str]:
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "TZ": "UTC"}
    return {**os.environ, **state, "TAILRACE_BOOTSTRAP": bootstrap, "COLUMNS": "200"}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    here = environment

    def run(
        *arguments: object, code: int = 0, given: bytes | None = None, environment: dict[str, str] | None = None
    ) -> tuple[str, str]:
        command = [*COMMAND, *map(str, arguments)]
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
        done = subprocess.run(command, capture_output=True, env={**here, **(environment or {})}, timeout=50, **source)
        said, warned = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, f"{said}\n{warned}"
        assert "Traceback" not in warned
        assert "rdkafka" not in warned
        return said, warned

    return run


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts a verb that runs for longer; whatever is left of it in the end is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # closes its pipes, and waits
            pass


@pytest.fixture
def new_topic(bootstrap: str) -> Callable[..., str]:
    """Makes topics that nobody else uses."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def new_topic(partitions: int = 1, name: str = "topic", **config: str) -> str:
        name = f"{name}-{uuid.uuid4().hex[:10]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        deadline = time.monotonic() + 10
        while name not in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return name

    return new_topic


@pytest.fixture
def ten(new_topic: Callable[..., str], bootstrap: str) -> str:
    """A topic of one partition with the messages 0 to 9."""
    from confluent_kafka import Producer

    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, str(number))
    assert producer.flush(20) == 0
    return topic


@pytest.fixture
def unused() -> str:
    """A name that no topic and no group has."""
    return f"unused-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def delete_before(admin: Any) -> Callable[[str, int], None]:
    """Deletes the first messages of a topic's first partition, as retention does."""
    from confluent_kafka import TopicPartition

    def delete_before(topic: str, offset: int) -> None:
        for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(20)

    return delete_before


@pytest.fixture
def wait_for_members(admin: Any) -> Callable[..., None]:
    """Until so many have joined a group, and each knows its share; meanwhile, one step after the other."""
    from confluent_kafka import ConsumerGroupState

    def wait_for_members(group: str, count: int, step: Callable[[], object] = lambda: time.sleep(0.02)) -> None:
        deadline = time.monotonic() + 20
        while True:
            described = admin.describe_consumer_groups([group], request_timeout=10)[group].result()
            if described.state == ConsumerGroupState.STABLE and len(described.members) == count:
                return
            assert time.monotonic() < deadline
            step()

    return wait_for_members


@pytest.fixture
def join(bootstrap: str, wait_for_members: Callable[..., None]) -> Iterator[Callable[..., Any]]:
    """Joins a group with a consumer, and waits until its partitions are shared out again; all leave in the end."""
    from confluent_kafka import Consumer

    joined: list[Consumer] = []

    def join(group: str, topic: str, **config: Any) -> Consumer:
        """A value of None takes one of the usual settings away."""
        own = {key.replace("_", "."): value for key, value in config.items()}
        usual = {"enable.auto.commit": False, "heartbeat.interval.ms": 100}
        settings = {key: value for key, value in {**usual, **own}.items() if value is not None}
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
        joined.append(consumer)
        consumer.subscribe([topic])
        wait_for_members(group, len(joined), lambda: [each.poll(0.02) for each in joined])
        return consumer

    yield join
    for consumer in joined:
        consumer.close()
