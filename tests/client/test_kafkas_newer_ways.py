"""What Apache Kafka has and our broker has not yet: groups of the newer kind."""

import secrets
import time

import pytest
from client.test_groups import commit_soon
from compat.brokers import against_kafka
from confluent_kafka import Consumer

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import GroupIsActive
from tailrace.client.groups import commit, committed

pytestmark = pytest.mark.skipif(not against_kafka(), reason="TAILRACE_COMPAT is not kafka")


def test_a_group_of_the_newer_kind_is_seen(bootstrap: str, cluster: Cluster, topic: str) -> None:
    group = f"group-{secrets.token_hex(4)}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline
        with pytest.raises(GroupIsActive):
            commit(cluster, group, {TopicPartition(topic, 0): 1})
    finally:
        consumer.close()
    commit_soon(cluster, group, TopicPartition(topic, 0))
    assert committed(cluster, group)[TopicPartition(topic, 0)].offset == 1
