"""The broker is stopped, or killed, in the middle: what was acknowledged is there, and clients go on by themselves."""

import contextlib
import secrets
import time
from collections.abc import Callable

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import Client, Refused, each_client_that
from compat.numbered_messages import check_each_once_in_order, interrupted, meanwhile, numbered, paced

COUNT = 400
End = Callable[[BrokerProcess], None]

each_end = pytest.mark.parametrize(
    "end", [BrokerProcess.restart, BrokerProcess.kill_and_start], ids=["restart", "kill"]
)


@pytest.fixture
def broker(own_broker: BrokerProcess) -> BrokerProcess:
    return own_broker


@each_client_that("is idempotent")
@each_end
def test_a_producer_goes_on_and_each_message_is_kept_once_in_order(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End
) -> None:
    client.produce(topic, interrupted(COUNT, COUNT // 4, lambda: end(broker)), idempotent=True)
    check_each_once_in_order(reference, topic, COUNT)


@each_client_that("produces")
@each_end
def test_a_producer_that_does_not_count_loses_nothing_that_was_acknowledged(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End
) -> None:
    client.produce(topic, interrupted(COUNT, COUNT // 4, lambda: end(broker)))
    with reference.consumer(topic, 0) as consumer:
        found = [each.value for each in consumer.take(reference.offset(topic, "latest") or 0)]
    assert set(found) == {message.value for message in numbered(COUNT)}


@each_client_that("consumes")
@each_end
def test_a_consumer_goes_on_and_gets_each_message_once_in_order(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End
) -> None:
    messages = interrupted(COUNT, COUNT // 4, lambda: end(broker))
    with (
        client.consumer(topic, 0) as consumer,
        meanwhile(lambda: reference.produce(topic, messages, idempotent=True)),
    ):
        found = consumer.take(COUNT)
    assert [each.message for each in found] == numbered(COUNT)
    assert [each.offset for each in found] == list(range(COUNT))


@each_end
def test_what_was_written_before_is_read_after(
    reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End
) -> None:
    reference.produce(topic, numbered(COUNT))
    for _ in range(3):
        end(broker)
        check_each_once_in_order(reference, topic, COUNT)


@each_end
def test_no_number_is_given_to_two_producers(
    reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End
) -> None:
    """Else what the second sends first is taken for what the first has sent."""
    for rounds in range(1, 4):
        reference.produce(topic, numbered(10), idempotent=True)
        assert reference.offset(topic, "latest") == 10 * rounds
        end(broker)


@pytest.mark.slow
@each_client_that("manages topics")
@each_end
def test_topics_created_and_deleted_before_are_so_after(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, name: str, end: End
) -> None:
    client.create_topic(name, partitions=3, configs={"retention.ms": "12345"})
    reference.wait_for(name)
    client.create_topic(f"{name}-deleted")
    reference.wait_for(f"{name}-deleted")
    client.delete_topic(f"{name}-deleted")
    client.set_configs(name, {"retention.ms": "23456"})
    client.add_partitions(name, 5)
    identity = reference.topic_id(name)
    end(broker)
    assert {each for each in client.topics() if not each.startswith("__")} == {name}
    assert client.partitions(name) == 5
    assert client.configs(name)["retention.ms"] == "23456"
    assert reference.topic_id(name) == identity


@each_client_that("manages topics")
@each_end
def test_a_topic_whose_creation_was_acknowledged_is_there(
    client: Client, reference: ConfluentClient, broker: BrokerProcess, end: End
) -> None:
    def end_soon() -> None:
        time.sleep(0.2)
        end(broker)

    created: set[str] = set()
    with meanwhile(end_soon) as ended:
        while not (ended.is_set() and created):
            name = f"topic-{secrets.token_hex(4)}"
            with contextlib.suppress(Refused):
                client.create_topic(name, partitions=2)
                created.add(name)
    assert reference.topics() >= created
    assert {reference.partitions(each) for each in created} == {2}


@each_end
def test_deleted_records_stay_deleted(reference: ConfluentClient, broker: BrokerProcess, topic: str, end: End) -> None:
    reference.produce(topic, paced(50))
    reference.delete_records(topic, 20)
    end(broker)
    assert reference.offset(topic, "earliest") == 20
    assert reference.offset(topic, "latest") == 50
