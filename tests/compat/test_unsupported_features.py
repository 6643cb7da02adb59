"""Real clients that ask for what the broker lacks: each fails with an error that helps, and is logged once."""

import pytest
from compat.brokers import BrokerProcess, against_kafka
from compat.clients import programs
from compat.clients.java import TOOLS, java
from confluent_kafka import KafkaException, Producer

pytestmark = pytest.mark.skipif(against_kafka(), reason="Kafka has these features")

TRANSACTIONS = "tailrace does not support transactions (transactional.id) yet: remove transactional.id"


def logged(broker: BrokerProcess, client_id: str) -> list[str]:
    return [line for line in broker.said.splitlines() if f"client {client_id!r}" in line and "was refused" in line]


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
