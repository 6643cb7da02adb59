"""What Apache Kafka has and our broker has not yet: transactions, and groups of the newer kind."""

import contextlib
import secrets
import time

import pytest
from client.conftest import options
from client.test_fetch import rows
from client.test_groups import commit_soon
from compat.brokers import against_kafka
from confluent_kafka import Consumer, Producer

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import GroupIsActive
from tailrace.client.fetch import PartitionReader
from tailrace.client.groups import commit, committed
from tailrace.client.long_poll import wait_for_more
from tailrace.client.offsets import latest
from tailrace.client.options import Isolation

pytestmark = pytest.mark.skipif(not against_kafka(), reason="TAILRACE_COMPAT is not kafka")


def test_open_and_aborted_transactions_are_told_apart(bootstrap: str, topic: str) -> None:
    where = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    with contextlib.closing(Cluster(options(bootstrap, isolation_level="read_committed"))) as cluster:
        for value, ends_well in ((b"good", True), (b"bad", False)):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(20)
            assert latest(cluster, [where]) == {where: 0 if ends_well else 2}
            assert latest(cluster, [where], Isolation.READ_UNCOMMITTED) == {where: 1 if ends_well else 3}
            assert wait_for_more(cluster, {where: latest(cluster, [where])[where]}, 0.1) == {}
            (producer.commit_transaction if ends_well else producer.abort_transaction)(20)
        assert wait_for_more(cluster, {where: 2}, 10) == {where: 4}
        chunks = list(PartitionReader(cluster, topic, 0, 0, 4))
    assert [header.is_control for chunk in chunks for _, header in chunk.batches] == [False, True, False, True]
    assert [row for row in rows(chunks) if row[0] in (0, 2)] == [(0, b"good"), (2, b"bad")]
    (aborted,) = {one for chunk in chunks for one in chunk.aborted}
    assert aborted[1] == 2


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
