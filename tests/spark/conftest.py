"""The broker that these tests speak to: ours, or with `TAILRACE_COMPAT=kafka` Apache Kafka, as in tests/compat."""

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import parts
import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.client.cluster.cluster import close_all
from tailrace.testing import Broker

KAFKA_SECONDS = 120
Options = dict[str, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if against_kafka():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(KAFKA_SECONDS))


class ForeignBroker:
    """A broker in a process of its own, another's or ours, with what these tests ask of ours."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.bootstrap = process.bootstrap
        self._admin = AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        self._admin.create_topics([topic])[name].result(30)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | ForeignBroker]:
    """A broker for all tests to share."""
    if not against_kafka():
        with Broker() as broker:
            yield broker
            close_all()
        return
    # Or compaction is waited for, and messages of 1970 are deleted after half a minute.
    settings = {"log.cleaner.backoff.ms": "200", "log.retention.ms": "-1"}
    with contextlib.closing(new_broker(tmp_path_factory.mktemp("spark") / "broker", settings=settings)) as process:
        process.start()
        yield ForeignBroker(process)
        close_all()


@pytest.fixture(scope="session", autouse=True)
def connections() -> Iterator[None]:
    """Those that this process keeps are closed when it ends."""
    yield
    close_all()


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"orders-{secrets.token_hex(4)}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def options(broker: Broker, topic: str) -> Options:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}


@pytest.fixture
def produce(broker: Broker, topic: str) -> Iterator[Callable[..., None]]:
    """Sends values to a partition, and returns when they are on disk."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def send(*values: str | None, partition: int = 0, to: str = topic, **fields: Any) -> None:
        for value in values:
            producer.produce(to, value, partition=partition, **fields)
        assert producer.flush(20) == 0

    yield send
    producer.flush(0)


def _connector() -> dict[str, str]:
    """Spark's own, where it is there."""
    if parts.missing("connector"):
        return {}
    return {"spark.jars": ",".join(str(jar) for jar in sorted((parts.spark_connector() / "jars").glob("*.jar")))}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of the test process; at its end, its Java process is gone, too."""
    if reason := parts.missing("spark"):
        (pytest.fail if "spark" in parts.required() else pytest.skip)(f"needs spark: {reason}")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # these tests are short: compiling well costs more
        **_connector(),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
