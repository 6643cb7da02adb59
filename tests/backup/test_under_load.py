"""A backup of a broker's directory while clients write, commit, and delete: a real process, real clients."""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from waits import until

TOPIC, PARTITIONS = "orders", 2
IMPATIENT = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=100")
Place = tuple[int, int]


def tailrace(*arguments: object, code: int = 0) -> Any:
    command = [sys.executable, "-m", "tailrace", "backup", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def bootstrap_of(broker: BrokerProcess) -> str:
    return f"{broker.address[0]}:{broker.address[1]}"


class Clients:
    """An idempotent producer, and a group that reads and commits, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[Place, bytes] = {}
        self.committed: dict[int, int] = {}
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1, "acks": "all"}
        )
        number = 0
        while not self._is_over.is_set():
            value = b"order %d " % number + b"." * (number * 37 % 9000)
            producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            producer.poll(0)
            if number % 50 == 0:
                producer.flush(0.01)
        producer.flush(20)

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acknowledged[message.partition(), message.offset()] = message.value()

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        # The member that the backup knows of is gone: the group goes on without it after its session.
        quick = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
        consumer = Consumer({**settings, **quick, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        while not self._is_over.is_set():
            if consumer.consume(200, 0.1) and (committed := consumer.commit(asynchronous=False)):
                self.committed.update({one.partition: one.offset for one in committed})
        consumer.close()


def read_all(bootstrap: str) -> tuple[dict[Place, bytes], dict[int, tuple[int, int]]]:
    """Every record by its place, and where each partition begins and ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": False})
    bounds = {n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=10) for n in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, n, start) for n, (start, _) in bounds.items()])
    wanted = sum(end - start for start, end in bounds.values())
    found: dict[Place, bytes] = {}
    while len(found) < wanted:
        for message in consumer.consume(100, 0.3):
            found[message.partition() or 0, message.offset() or 0] = message.value() or b""
    consumer.close()
    return found, bounds


@pytest.mark.slow
def test_a_backup_under_load_has_all_records_acknowledged_before_it_began(tmp_path: Path) -> None:
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    with BrokerProcess(tmp_path / "data", *IMPATIENT) as broker:
        bootstrap = bootstrap_of(broker)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": "1048576"})])[TOPIC].result()
        with Clients(bootstrap) as clients:
            until(lambda: len(clients.acknowledged) > 800 and len(clients.committed) == PARTITIONS)
            tailrace("create", tmp_path / "data", backups)
            admin.delete_records([TopicPartition(TOPIC, 0, 300)])[TopicPartition(TOPIC, 0, 300)].result()
            until(lambda: len(clients.acknowledged) > 1600)
            before, committed = dict(clients.acknowledged), dict(clients.committed)
            second = tailrace("create", tmp_path / "data", backups)
        written, _ = read_all(bootstrap)
    assert tailrace("verify", backups)["healthy"]
    assert second["copied_bytes"] < second["bytes"]
    tailrace("restore", backups, restored)
    with BrokerProcess(restored, *IMPATIENT) as broker:
        bootstrap = bootstrap_of(broker)
        found, bounds = read_all(bootstrap)
        assert bounds[0][0] == 300
        assert {place: value for place, value in before.items() if place not in found} == {
            place: value for place, value in before.items() if place[0] == 0 and place[1] < 300
        }
        assert all(written[place] == value for place, value in found.items())
        group = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
        for one in group.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], timeout=10):
            assert committed[one.partition] <= one.offset <= bounds[one.partition][1]
        group.close()
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        configs = admin.describe_configs([resource])[resource].result()
        assert configs["segment.bytes"].value == "1048576"
        with Clients(bootstrap) as clients:
            until(lambda: len(clients.acknowledged) > 200 and len(clients.committed) == PARTITIONS)
        assert min(offset for partition, offset in clients.acknowledged if partition == 1) == bounds[1][1]
    assert ".cut" not in "".join(path.name for path in restored.rglob("*"))


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_backups_that_are_killed_again_and_again_under_load_end_in_one_that_is_whole(tmp_path: Path) -> None:
    backups, lot = tmp_path / "backups", random.Random(7)
    create = ["backup", "create", str(tmp_path / "data"), str(backups), "--rate", "15MB"]
    command = [sys.executable, "-m", "tailrace", *create]
    with BrokerProcess(tmp_path / "data", *IMPATIENT) as broker:
        bootstrap = bootstrap_of(broker)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": "1048576"})])[TOPIC].result()
        with Clients(bootstrap) as clients:
            until(lambda: len(clients.acknowledged) > 3000)
            for _ in range(12):
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(lot.uniform(0.3, 2.5))
                process.kill()
                process.wait()
        before = dict(clients.acknowledged)
        tailrace("create", tmp_path / "data", backups)
    assert all(one["healthy"] for one in tailrace("verify", backups, "--all"))
    tailrace("restore", backups, tmp_path / "restored")
    with BrokerProcess(tmp_path / "restored", *IMPATIENT) as broker:
        assert read_all(bootstrap_of(broker))[0] == before
