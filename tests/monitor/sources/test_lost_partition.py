"""A partition whose log is lost: the others are measured all the same."""

import contextlib
import shutil
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.client.cluster.metadata import TopicPartition as Partition
from tailrace.monitor.sources.connection import connect
from tailrace.monitor.sources.tailrace_facts import facts_about
from tailrace.testing.broker_process import BrokerProcess


def test_one_lost_partition_does_not_blind_the_monitor(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for topic in ("whole", "lost"):
            for number in range(5):
                producer.produce(topic, b"%d" % number)
        assert producer.flush(30) == 0
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        reader.commit(offsets=[TopicPartition(topic, 0, 2) for topic in ("whole", "lost")], asynchronous=False)
        reader.close()
        assert broker.stop() == 0
        shutil.rmtree(tmp_path / "data" / "lost-0")
        broker.start()
        with contextlib.closing(connect({"bootstrap.servers": broker.bootstrap})) as cluster:
            seen = facts_about(cluster).snapshot()
    assert set(seen.groups["billing"].committed) == {Partition("whole", 0), Partition("lost", 0)}
    assert {partition: log.end for partition, log in seen.logs.items()} == {Partition("whole", 0): 5}
