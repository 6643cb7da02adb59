"""Topics and their settings, managed by clients of every kind."""

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import Client, Code, Message, each_client_that, refused
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
}
some_messages = [Message(b"value %d" % n, b"key") for n in range(30)]


@each_client_that("lists topics")
def test_a_topic_is_listed(client: Client, topic: str) -> None:
    assert topic in client.topics()


@each_client_that("manages topics")
def test_a_topic_is_created_and_described(client: Client, reference: ConfluentClient, name: str) -> None:
    client.create_topic(name, partitions=3, configs={"retention.ms": "12345", "cleanup.policy": "compact"})
    reference.wait_for(name)
    assert client.partitions(name) == reference.partitions(name) == 3
    found = reference.configs(name)
    assert (found["retention.ms"], found["cleanup.policy"]) == ("12345", "compact")
    assert name in client.topics()


@each_client_that("manages topics")
def test_a_topic_is_not_created_twice(client: Client, reference: ConfluentClient, topic: str) -> None:
    with refused(Code.TOPIC_ALREADY_EXISTS):
        client.create_topic(topic, partitions=2)
    assert reference.partitions(topic) == 1


@each_client_that("manages topics")
def test_a_name_that_is_none_is_refused(client: Client, reference: ConfluentClient) -> None:
    with refused(Code.INVALID_TOPIC):
        client.create_topic("a b")
    assert "a b" not in reference.topics()


@pytest.mark.parametrize("bad", ["", ".", "..", "ü", "a/b", "n" * 250])
def test_every_kind_of_name_that_is_none_is_refused(reference: ConfluentClient, bad: str) -> None:
    with refused(Code.INVALID_TOPIC):
        reference.create_topic(bad)
    assert bad not in reference.topics()


def test_a_name_may_have_249_characters(reference: ConfluentClient, name: str) -> None:
    longest = name + "x" * (249 - len(name))
    reference.create_topic(longest)
    reference.produce(longest, some_messages)
    assert reference.offset(longest, "latest") == len(some_messages)


def test_names_that_differ_in_a_dot_and_an_underscore_are_not_both_taken(reference: ConfluentClient, name: str) -> None:
    reference.create_topic(f"{name}.x")
    with refused(Code.INVALID_TOPIC):
        reference.create_topic(f"{name}_x")


@pytest.mark.parametrize(("partitions", "replicas", "code"), [(0, 1, 37), (1, 3, 38)])
def test_numbers_that_cannot_be_are_refused(
    reference: ConfluentClient, name: str, partitions: int, replicas: int, code: int
) -> None:
    with refused(code):
        reference.create_topic(name, partitions=partitions, replicas=replicas)
    assert name not in reference.topics()


@each_client_that("manages topics", but=["aiokafka"])  # whose question makes the topic
def test_a_topic_that_is_not_there_is_not_described(client: Client, reference: ConfluentClient, name: str) -> None:
    with refused(Code.UNKNOWN_TOPIC_OR_PARTITION):
        client.partitions(name)
    assert name not in reference.topics()


@each_client_that("manages topics")
def test_a_topic_that_is_not_there_is_not_deleted(client: Client, name: str) -> None:
    with refused(Code.UNKNOWN_TOPIC_OR_PARTITION):
        client.delete_topic(name)


@each_client_that("manages topics")
def test_partitions_are_added_and_used(client: Client, reference: ConfluentClient, topic: str) -> None:
    reference.produce(topic, some_messages)
    client.add_partitions(topic, 3)
    assert reference.partitions(topic) == 3
    reference.produce(topic, some_messages, partition=2)
    assert [reference.offset(topic, "latest", partition=partition) for partition in range(3)] == [30, 0, 30]


@each_client_that("manages topics")
def test_partitions_are_never_taken_away(client: Client, reference: ConfluentClient, name: str) -> None:
    reference.create_topic(name, partitions=3)
    with refused(Code.INVALID_PARTITIONS):
        client.add_partitions(name, 2)
    assert reference.partitions(name) == 3


@each_client_that("manages topics")
def test_a_deleted_topic_is_gone_and_its_name_free_for_another(
    client: Client, reference: ConfluentClient, topic: str
) -> None:
    reference.produce(topic, some_messages)
    identity = reference.topic_id(topic)
    client.delete_topic(topic)
    reference.wait_for(topic, there=False)
    assert topic not in client.topics()
    client.create_topic(topic)
    reference.wait_for(topic)
    assert reference.topic_id(topic) != identity
    assert reference.offset(topic, "latest") == 0
    reference.produce(topic, some_messages[:7])
    with reference.consumer(topic, 0) as consumer:
        assert [(each.offset, each.message) for each in consumer.take(7)] == list(enumerate(some_messages[:7]))


@each_client_that("manages configs")
def test_every_setting_is_described_with_kafka_s_default(client: Client, topic: str) -> None:
    found = client.configs(topic)
    assert {key: found.get(key) for key in DEFAULTS} == DEFAULTS


@each_client_that("manages configs")
def test_settings_are_changed(client: Client, reference: ConfluentClient, topic: str) -> None:
    client.set_configs(topic, {"retention.ms": "600000", "max.message.bytes": "2000"})
    found = reference.configs(topic)
    assert (found["retention.ms"], found["max.message.bytes"]) == ("600000", "2000")
    assert client.configs(topic) == found
    with refused(Code.MESSAGE_TOO_LARGE):
        reference.produce(topic, [Message(b"x" * 3000)])


@each_client_that("manages configs")
def test_a_setting_that_makes_no_sense_is_refused(client: Client, reference: ConfluentClient, topic: str) -> None:
    before = reference.configs(topic)
    with refused(Code.INVALID_CONFIG):
        client.set_configs(topic, {"retention.ms": "soon"})
    assert reference.configs(topic) == before


@pytest.mark.parametrize("bad", [{"no.such.setting": "1"}, {"cleanup.policy": "burn"}, {"segment.bytes": "-1"}])
def test_every_kind_of_setting_that_makes_no_sense_is_refused(
    reference: ConfluentClient, topic: str, name: str, bad: dict[str, str]
) -> None:
    with refused(Code.INVALID_CONFIG):
        reference.set_configs(topic, bad)
    with refused(Code.INVALID_CONFIG):
        reference.create_topic(f"{name}-not", configs=bad)
    assert f"{name}-not" not in reference.topics()


def test_settings_are_appended_to_taken_from_and_reset(reference: ConfluentClient, topic: str) -> None:
    def alter(operation: AlterConfigOpType, value: str | None) -> str:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=operation)
        reference.alter_configs(topic, [entry])
        return reference.configs(topic)["cleanup.policy"]

    reference.set_configs(topic, {"retention.ms": "600000"})
    assert set(alter(AlterConfigOpType.APPEND, "compact").split(",")) == {"delete", "compact"}
    assert alter(AlterConfigOpType.SUBTRACT, "delete") == "compact"
    assert alter(AlterConfigOpType.DELETE, None) == "delete"
    assert reference.configs(topic)["retention.ms"] == "600000"


@each_client_that("deletes records")
def test_records_are_deleted_up_to_an_offset(client: Client, reference: ConfluentClient, topic: str) -> None:
    reference.produce(topic, some_messages)
    client.delete_records(topic, 12)
    assert reference.offset(topic, "earliest") == 12
    with reference.consumer(topic) as consumer:
        assert [each.offset for each in consumer.take(18)] == list(range(12, 30))
    client.delete_records(topic, -1)
    assert reference.offset(topic, "earliest") == reference.offset(topic, "latest") == 30


@each_client_that("deletes records", but=["kafkajs"])  # which asks for the end first, and gives up
def test_records_are_not_deleted_past_the_end(client: Client, reference: ConfluentClient, topic: str) -> None:
    reference.produce(topic, some_messages)
    with refused(Code.OFFSET_OUT_OF_RANGE):
        client.delete_records(topic, 31)
    assert reference.offset(topic, "earliest") == 0


@each_client_that("describes the cluster")
def test_the_cluster_is_this_broker(client: Client, reference: ConfluentClient, broker: BrokerProcess) -> None:
    found = client.cluster()
    assert list(found.brokers.values()) == [broker.bootstrap]
    assert found == reference.cluster()
