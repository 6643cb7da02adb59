import os
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any

import parts
import pytest
from confluent_kafka import Producer

from tailrace.testing import Broker

Options = dict[str, str]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
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
        "spark.sql.streaming.stopTimeout": "20s",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
