"""Programs that copy a topic to another in transactions, started and killed; and what must hold of the two topics."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from compat import sources
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
INPUT, OUTPUT = "input", "output"
PARTITIONS = 3
KEYS = 8
SECONDS = 100  # for whatever must happen in the end, on a busy machine


def example(name: str, bootstrap: str, *more: str) -> list[str]:
    """The command of a program of examples/."""
    where = ("--bootstrap", bootstrap, "--input", INPUT, "--output", OUTPUT)
    return [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py"), *where, *more]


def java_copier(bootstrap: str) -> list[str]:
    jars = ("kafka-clients-*", "slf4j-api-*")
    return [*sources.command(Path(__file__).with_name("JavaCopier.java"), jars), bootstrap, INPUT, OUTPUT]


class Copier:
    """A program that is started again whenever it has ended."""

    def __init__(self, command: list[str], output: Path, *, directory: Path | None = None) -> None:
        self._command = command
        self._output = output
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Starts it if it does not run."""
        if self._process is None or self._process.poll() is not None:
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._directory,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    close = kill

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")[-3000:] if self._output.exists() else ""


class Feeder:
    """Appends to the input until it is stopped, through any crash of the broker: `key number`, under that key."""

    def __init__(self, bootstrap: str, pause_s: float = 0.002) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder")
        self._thread.start()

    def _feed(self) -> None:
        number = 0
        while not self._stopped.wait(self._pause_s):
            for key in range(KEYS):
                self._producer.produce(INPUT, f"{key} {number} x", str(key))
            number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(SECONDS) == 0


class Topics:
    """The input and the output, as a client sees them that is made anew for each look."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def create(self) -> None:
        admin = self._admin
        made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (INPUT, OUTPUT)])
        for each in made.values():
            each.result(SECONDS)

    def ends(self, topic: str, isolation: IsolationLevel) -> list[int]:
        """Of committed messages: the last stable offsets."""
        admin = self._admin
        partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
        found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=SECONDS)
        return [each.result(SECONDS).offset for each in found.values()]

    def committed_ends(self, topic: str = OUTPUT) -> list[int]:
        return self.ends(topic, IsolationLevel.READ_COMMITTED)

    def is_open(self, topic: str) -> bool:
        """Whether a transaction is open in one of its partitions."""
        return self.committed_ends(topic) != self.ends(topic, IsolationLevel.READ_UNCOMMITTED)

    def by_key(self, topic: str) -> dict[str, list[str]]:
        """What a consumer of committed messages finds, up to the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: dict[str, list[str]] = defaultdict(list)
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(SECONDS)
            assert message is not None
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
            else:
                found[(message.key() or b"").decode()].append((message.value() or b"").decode())
        consumer.close()
        return dict(found)


def difference(wanted: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Where they differ first; empty where they do not."""
    for key in sorted(wanted.keys() | found.keys()):
        ours, theirs = wanted.get(key, []), found.get(key, [])
        for number, pair in enumerate(zip(ours, theirs, strict=False)):
            if pair[0] != pair[1]:
                return f"key {key}: message {number} is {pair[1]!r}, not {pair[0]!r}"
        if len(ours) != len(theirs):
            return f"key {key}: {len(theirs)} messages, not {len(ours)}"
    return ""


def wait_for(copiers: Iterable[Copier], done: object, what: str) -> None:
    """Until `done()`; keeps the copiers running meanwhile."""
    assert callable(done)
    deadline = time.monotonic() + SECONDS
    while not done():
        for copier in copiers:
            copier.ensure()
        assert time.monotonic() < deadline, f"{what} does not come: {[copier.said for copier in copiers]}"
        time.sleep(0.05)


def pick(lot: random.Random) -> set[str]:
    """What is killed this time."""
    return lot.choice([{"broker"}, {"copier"}, {"copier"}, {"broker", "copier"}])
