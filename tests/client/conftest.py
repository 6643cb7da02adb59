"""The broker that these tests speak to: ours, or with `TAILRACE_COMPAT=kafka` Apache Kafka, as in tests/compat."""

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client.fakes import FakeBroker
from compat.brokers import BrokerProcess, against_kafka, new_broker

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.options import ClientOptions
from tailrace.client.produce import Producer
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tailrace.records.record import Record, encode_batch
from tailrace.testing import Broker

KAFKA_SECONDS = 120
Options = Callable[..., ClientOptions]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if against_kafka():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.timeout(KAFKA_SECONDS))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker knows at once which topics there are; Kafka's does not, quite."""
    if not against_kafka():
        monkeypatch.setattr("tailrace.client.cluster.cluster.PATIENCE_S", 0.1)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all tests to share."""
    if not against_kafka():
        with Broker() as broker:
            yield broker.bootstrap
        return
    process = new_broker(tmp_path_factory.mktemp("client") / "broker")
    with contextlib.closing(process):
        process.start()
        yield process.bootstrap


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, in a process that can be killed."""
    with contextlib.closing(new_broker(tmp_path / "broker")) as broker:
        broker.start()
        yield broker


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(options(bootstrap))) as cluster:
        yield cluster


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with contextlib.closing(FakeBroker()) as broker:
        yield broker


@pytest.fixture
def another_fake(fake: FakeBroker) -> Iterator[FakeBroker]:
    """A second broker of the same cluster."""
    with contextlib.closing(FakeBroker(fake)) as broker:
        yield broker


@pytest.fixture
def faked(fake: FakeBroker) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(options(fake.bootstrap))) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """An empty topic of one partition."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:150] + secrets.token_hex(4)
    create_topic(cluster, name)
    return name


def options(bootstrap: str, **properties: str) -> ClientOptions:
    """Properties are written with underscores for their dots."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return ClientOptions.from_properties({"bootstrap.servers": bootstrap, "retry.backoff.ms": "20", **given})


def create_topic(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Its id."""
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    answer = cluster.ask_any(request, CreateTopicsResponse, cluster.retry("creating a topic"))
    assert [topic.error_code for topic in answer.topics] == [0], answer
    return cluster.topic(name, fresh=True).topic_id


def delete_topic(cluster: Cluster, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    answer = cluster.ask_any(request, DeleteTopicsResponse, cluster.retry("deleting a topic"))
    assert [topic.error_code for topic in answer.responses] == [0], answer


def a_batch(*values: bytes, base_offset: int = 0, timestamp: int = 1_700_000_000_000, **fields: object) -> bytearray:
    records = [Record(base_offset + n, timestamp + n, None, value) for n, value in enumerate(values)]
    return encode_batch(records, base_offset=base_offset, **fields)  # type: ignore[arg-type]


def write(cluster: Cluster, topic: str, *values: bytes, partition: int = 0, **fields: Any) -> int:
    """One batch; its first offset."""
    where = TopicPartition(topic, partition)
    return Producer(cluster).send({where: a_batch(*values, **fields)})[where]
