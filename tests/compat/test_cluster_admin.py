"""What clients' own test suites ask of a cluster: incremental changes of configs, log directories, the quorum.

Each call is one that Kafka 4.3 answers alike (`TAILRACE_COMPAT=kafka`).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import leaves_sockets
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import KafkaAdminClient
from kafka.errors import LogDirNotFoundError, NoError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartitionReplica

SECONDS = 30


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[Any]:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        yield admin


def set_in(configs: dict[str, ConfigEntry]) -> dict[str, str | None]:
    """Those that are not at their default, as librdkafka understands that."""
    return {name: entry.value for name, entry in configs.items() if not entry.is_default}


def test_configs_of_two_topics_change_one_by_one(broker: BrokerProcess, reference: ConfluentClient, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def altered(topic: str, **changes: tuple[AlterConfigOpType, str | None]) -> dict[str, str | None]:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, (operation, value) in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        return set_in(admin.describe_configs([resource])[resource].result(SECONDS))

    topics = [f"{name}-{number}" for number in range(2)]
    for topic in topics:
        reference.create_topic(topic, partitions=2, configs={"compression.type": "gzip"})
    operations = AlterConfigOpType
    everywhere = {"compression.type": "gzip", "min.insync.replicas": "1"}
    changes = {"cleanup_policy": (operations.APPEND, "compact"), "retention_ms": (operations.SET, "10000")}
    expected = {**everywhere, "cleanup.policy": "delete,compact", "retention.ms": "10000"}
    assert altered(topics[0], **changes) == expected
    changes = {"cleanup_policy": (operations.SUBTRACT, "delete"), "retention_ms": (operations.SET, "5000")}
    assert altered(topics[1], **changes) == {**everywhere, "cleanup.policy": "", "retention.ms": "5000"}
    expected = {"cleanup.policy": "", "min.insync.replicas": "1", "retention.ms": "5000"}
    assert altered(topics[1], compression_type=(operations.DELETE, None)) == expected


@leaves_sockets
def test_a_replica_is_sent_to_the_directory_where_it_is(kafka_python: Any, topic: str) -> None:
    (described,) = kafka_python.describe_log_dirs()
    (directory,) = described["log_dirs"]
    here, broker_id = directory["log_dir"], described["broker"]

    def moved(topic: str, path: str) -> Any:
        replica = TopicPartitionReplica(topic, 0, broker_id)
        return kafka_python.alter_replica_log_dirs({replica: path})[replica]

    assert moved(topic, here) is NoError
    assert moved(topic, "/nowhere") is LogDirNotFoundError
    assert moved(f"{topic}-of-nobody", here) is UnknownTopicOrPartitionError


@leaves_sockets
def test_the_quorum_has_one_voter_which_leads_it(kafka_python: Any) -> None:
    found = kafka_python.describe_metadata_quorum()
    (topic,) = found["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_name"], partition["partition_index"], partition["error"]) == ("__cluster_metadata", 0, None)
    assert partition["leader_id"] == 1
    assert partition["leader_epoch"] >= 0
    assert partition["high_watermark"] > 0
    (voter,) = partition["current_voters"]
    assert (voter["replica_id"], partition["observers"]) == (1, [])
    assert [node["node_id"] for node in found["nodes"]] == [1]
