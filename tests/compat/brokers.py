"""The broker under test, as a process that clients reach by its address and tests may stop, kill and start again.

Ours by default. `TAILRACE_COMPAT=kafka` runs the same tests against Apache Kafka, which shows that a test asks for what
Kafka does and not for what we happen to do. Port and data directory stay the same from one start to the next.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import parts
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

HOST = "127.0.0.1"
START_SECONDS = 60
KEEPING = {"log.retention.check.interval.ms": "86400000"}  # or records of long ago are gone, some time


def against_kafka() -> bool:
    chosen = os.environ.get("TAILRACE_COMPAT", "tailrace")
    if chosen not in ("tailrace", "kafka"):
        raise ValueError(f"TAILRACE_COMPAT is {chosen!r}; known are tailrace and kafka")
    return chosen == "kafka"


def free_port() -> int:
    """A port that nobody is given by chance, as those for outgoing connections are.

    A client that tries a port of that kind while the broker is down can end up connected to itself, and the broker
    finds its port taken. The random number is not Python's, which is seeded alike in every test worker.
    """
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class BrokerProcess(ABC):
    """`advertised` is the port that the broker tells its clients, for a proxy in front; its own unless given.

    `settings` are configs of the broker, by the names that Kafka has for them.
    """

    exit_status: int  # after SIGTERM

    def __init__(
        self, directory: Path, *, advertised: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir()
        self.settings = KEEPING | dict(settings or {})
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.advertised = advertised or self.port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.advertised}"

    @property
    def output(self) -> Path:
        return self.directory / "output"

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def is_ready(self, said: str) -> bool:
        """Whether clients are served, asked again and again after a start; `said` is what it printed since."""

    def start(self) -> None:
        assert self._process is None, "it is running"
        before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            self._wait_until_ready(before)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, before: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready(said := self.output.read_bytes()[before:].decode(errors="replace")):
            assert self._process.poll() is None, f"the broker ended with {self._process.returncode}: {said}"
            assert time.monotonic() < deadline, f"the broker is not ready after {START_SECONDS} s: {said}"
            time.sleep(0.02)

    def stop(self) -> None:
        assert self._end(signal.SIGTERM) == self.exit_status, self.output.read_text(errors="replace")[-5000:]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> int:
        assert self._process is not None, "it is not running"
        process, self._process = self._process, None
        process.send_signal(with_signal)
        try:
            return process.wait(timeout=START_SECONDS)
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        if self._process is not None:
            self.kill()


class TailraceProcess(BrokerProcess):
    exit_status = 0

    def command(self) -> list[str]:
        serve = [sys.executable, "-m", "tailrace", "serve", "--data", str(self.data)]
        listen = ["--listen", self.address, "--metrics", f"{HOST}:0"]
        sets = [option for item in self.settings.items() for option in ("--set", "=".join(item))]
        return [*serve, *listen, *sets, *(["--advertise", self.bootstrap] if self.bootstrap != self.address else [])]

    def is_ready(self, said: str) -> bool:
        return f"listening on {self.address}" in said


class KafkaProcess(BrokerProcess):
    exit_status = 128 + signal.SIGTERM

    def __init__(
        self, directory: Path, *, advertised: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, advertised=advertised, settings=settings)
        if reason := parts.missing("kafka"):
            raise RuntimeError(f"TAILRACE_COMPAT=kafka needs kafka: {reason}")
        settings = self._settings(free_port())
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = "fGb4nUr3TsKzW1Q0yXbq9A"
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))
        subprocess.run(command, check=True, capture_output=True)

    def _settings(self, controller_port: int) -> dict[str, object]:
        internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self.data,
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": 2000,  # so long a killed broker is not let in again
            **{f"{topic}.replication.factor": 1 for topic in internal},
            **{f"{topic}.min.isr": 1 for topic in internal[1:]},
            "offsets.topic.num.partitions": 1,
            **self.settings,
        }

    @staticmethod
    def _java(*arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{parts.kafka_jars()}/*", *arguments]

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._properties))

    def is_ready(self, said: str) -> bool:
        """It prints nothing without a logger; ready is who knows its partitions. (A port may be open well before.)"""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return self._knows_its_partitions()
        return False

    def _knows_its_partitions(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            topics = admin.list_topics(timeout=2).topics
            partitions = [TopicPartition(name, number) for name in topics for number in topics[name].partitions]
            for answer in admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest())).values():
                answer.result(2)
        except (KafkaException, TimeoutError):
            return False
        return True


def new_broker(
    directory: Path, *, advertised: int | None = None, settings: Mapping[str, str] | None = None
) -> BrokerProcess:
    kind = KafkaProcess if against_kafka() else TailraceProcess
    return kind(directory, advertised=advertised, settings=settings)
