"""Real clients that ask for what the broker lacks: each fails with an error that helps, and is logged once."""

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients import programs
from compat.clients.java import TOOLS, java
from confluent_kafka import Consumer, KafkaError

pytestmark = pytest.mark.skipif(against_kafka(), reason="Kafka has these features")

GROUP_PROTOCOL = "tailrace does not support group.protocol=consumer yet: set group.protocol=classic in the client"


def logged(broker: BrokerProcess, client_id: str) -> list[str]:
    return [line for line in broker.said.splitlines() if f"client {client_id!r}" in line and "was refused" in line]


def test_a_consumer_of_librdkafka_with_the_new_group_protocol_ends_with_an_error(
    broker: BrokerProcess, topic: str, name: str
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": name, "group.protocol": "consumer"}
    for _ in range(2):
        consumer = Consumer({**settings, "client.id": name, "log_level": 0})
        consumer.subscribe([topic])
        message = consumer.poll(40)
        consumer.close()
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._FATAL
        assert "API version not supported" in error.str()
    (line,) = logged(broker, name)
    assert GROUP_PROTOCOL in line


@pytest.mark.needs("java", "kafka")
def test_a_consumer_of_java_with_the_new_group_protocol_ends_with_an_error(
    broker: BrokerProcess, topic: str, name: str
) -> None:
    own = [word for item in ("group.protocol=consumer", f"client.id={name}") for word in ("--command-property", item)]
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    done = programs.run(java(f"{TOOLS}.ConsumerPerformance", *where, "--num-records", "1", *own))
    assert "Set group.protocol=classic" in done.stdout + done.stderr
    (line,) = logged(broker, name)
    assert GROUP_PROTOCOL in line
