"""A broker that compacts all the time, under idempotent producers and readers that never stop: nobody misses the newest
value of a key, whatever is killed meanwhile.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "keys"
OPTIONS = [
    f"--set={name}={value}"
    for name, value in {
        "log.segment.bytes": 1 << 20,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.delete.retention.ms": 500,
    }.items()
]


class Writer(threading.Thread):
    """Writes keys again and again, and deletes some; remembers the last acknowledged value of each."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__()
        self.last: dict[bytes, bytes | None] = {}
        self.errors: list[KafkaError] = []
        self.count = 0
        self.is_over = False
        self._random = random.Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 60_000}
        )

    def run(self) -> None:
        while not self.is_over:
            key = b"key %d" % self._random.randrange(40)
            value = None if self._random.random() < 0.05 else b"%d " % self.count + self._random.randbytes(3000)
            self.last[key] = value
            self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            self.count += 1
            self._producer.poll(0)
            if self.count % 20 == 0:
                time.sleep(0.005)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.errors.append(error)


class Reader(threading.Thread):
    """Reads from the beginning to where the log ends when everybody is done."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.seen: dict[bytes, bytes | None] = {}
        self.offsets: list[int] = []
        self.end: int | None = None
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        )

    def run(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            message: Any = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.offsets.append(message.offset())
                self.seen[message.key()] = message.value()
            elif self.end is not None:
                (place,) = self._consumer.position([TopicPartition(TOPIC, 0)])
                if place.offset >= self.end:
                    break
        self._consumer.close()


def run(
    path: Path, seconds: float, disturb: Callable[[BrokerProcess], BrokerProcess] | None = None, passes: int = 3
) -> None:
    """Until some passes were done, at least. Readers begin at several times."""
    broker = BrokerProcess(path, *OPTIONS).start()
    bootstrap = broker.bootstrap
    try:
        topic = NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])[TOPIC].result(30)
        writer = Writer(bootstrap, seed=1)
        writer.start()
        readers: list[Reader] = []
        began = time.monotonic()
        while time.monotonic() - began < seconds or broker.said.count("compacted") < passes:
            assert time.monotonic() - began < 60, "nothing is compacted"
            if len(readers) < 3:
                readers.append(Reader(bootstrap))
                readers[-1].start()
            time.sleep(seconds / 4)
            if disturb is not None and time.monotonic() - began < seconds:
                broker = disturb(broker)
        writer.is_over = True
        writer.join(90)
        readers.append(Reader(bootstrap))
        readers[-1].start()
        check(bootstrap, writer, readers)
    finally:
        assert broker.stop() == 0


def check(bootstrap: str, writer: Writer, readers: list[Reader]) -> None:
    asked = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    _, end = asked.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    asked.close()
    assert not writer.errors
    assert end == writer.count, "each message is stored once"
    for reader in readers:
        reader.end = end
    for reader in readers:
        reader.join(100)
        assert reader.offsets == sorted(set(reader.offsets)), "in order, and none twice"
        live = {key: value for key, value in writer.last.items() if value is not None}
        found = {key: value for key, value in reader.seen.items() if value is not None}
        assert found.keys() == live.keys()
        assert found == live
    assert len(readers[-1].offsets) < writer.count, "nothing was compacted"


def leftovers(path: Path) -> list[str]:
    return [name for name in os.listdir(path / f"{TOPIC}-0") if name.endswith((".cleaned", ".swap", ".tmp"))]


@pytest.mark.timeout(180)
def test_readers_of_a_log_that_is_compacted_all_the_time_miss_no_live_key(tmp_path: Path) -> None:
    run(tmp_path / "data", seconds=0.5, passes=1)
    assert not leftovers(tmp_path / "data")


def kill_child(broker: BrokerProcess) -> BrokerProcess:
    """The process that compacts, if there is one just now."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children")
        tasks = Path(f"/proc/{broker.process.pid}/task").glob("*/children")
        for number in {one for path in [children, *tasks] for one in path.read_text().split()}:
            os.kill(int(number), signal.SIGKILL)
            return broker
        time.sleep(0.002)
    return broker


def kill_broker(broker: BrokerProcess) -> BrokerProcess:
    time.sleep(random.uniform(0, 0.5))
    broker.kill()
    return broker.start()


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("disturb", [None, kill_child, kill_broker], ids=["nobody", "the child", "the broker"])
def test_whoever_is_killed_readers_miss_no_live_key(
    tmp_path: Path, disturb: Callable[[BrokerProcess], BrokerProcess] | None
) -> None:
    run(tmp_path / "data", 20, disturb)
    assert not leftovers(tmp_path / "data")
