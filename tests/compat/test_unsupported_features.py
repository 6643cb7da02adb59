"""Real clients that ask for what the broker lacks: each fails with an error that helps, and is logged once."""

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients import programs
from compat.clients.java import TOOLS, java
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

pytestmark = pytest.mark.skipif(against_kafka(), reason="Kafka has these features")

GROUP_PROTOCOL = "tailrace does not support group.protocol=consumer yet: set group.protocol=classic in the client"
TRANSACTIONS = "tailrace does not support transactions (transactional.id) yet: remove transactional.id"


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


def test_a_transactional_producer_of_librdkafka_ends_with_the_reason(broker: BrokerProcess, name: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "client.id": name, "log_level": 0}
    for _ in range(2):
        with pytest.raises(KafkaException) as raised:
            Producer(settings).init_transactions(40)
        assert raised.value.args[0].fatal()
        assert TRANSACTIONS in raised.value.args[0].str()
    (line,) = logged(broker, name)
    assert TRANSACTIONS in line


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


@pytest.mark.needs("java", "kafka")
def test_a_transactional_producer_of_java_ends_and_points_to_the_log_of_the_broker(
    broker: BrokerProcess, topic: str, name: str
) -> None:
    amount = ("--num-records", "1", "--record-size", "1", "--throughput", "-1")
    own = ("--transactional-id", name, "--command-property", f"client.id={name}")
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    done = programs.run(java(f"{TOOLS}.ProducerPerformance", *where, *amount, *own))
    assert "See the broker logs for more details" in done.stdout + done.stderr
    (line,) = logged(broker, name)
    assert TRANSACTIONS in line
