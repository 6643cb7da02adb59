"""The broker under test, as a process that clients reach by its address and tests may stop, kill and start again.

Ours by default. `TAILRACE_COMPAT=kafka` runs the same tests against Apache Kafka, which shows that a test asks for what
Kafka does and not for what we happen to do. Port and data directory stay the same from one start to the next.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import parts
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tailrace.testing import broker_process
from tailrace.testing.broker_process import HOST, free_port

KEEPING = {"log.retention.check.interval.ms": "86400000"}  # or records of long ago are gone, some time


def against_kafka() -> bool:
    chosen = os.environ.get("TAILRACE_COMPAT", "tailrace")
    if chosen not in ("tailrace", "kafka"):
        raise ValueError(f"TAILRACE_COMPAT is {chosen!r}; known are tailrace and kafka")
    return chosen == "kafka"


class BrokerProcess(broker_process.BrokerProcess):
    """`advertised` is the port that the broker tells its clients, for a proxy in front; its own unless given.

    `settings` are configs of the broker, by the names that Kafka has for them.
    """

    exit_status = 0  # after SIGTERM

    def __init__(
        self, directory: Path, *, advertised: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir()
        port = free_port()
        super().__init__(
            directory / "data",
            configs=KEEPING | dict(settings or {}),
            listen=f"{HOST}:{port}",
            metrics=f"{HOST}:0",
            output=directory / "output",
        )
        self.directory = directory
        self.advertised = advertised or port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.advertised}"

    def stop(self) -> int:
        """The exit code is checked."""
        code = super().stop()
        assert code == self.exit_status, self.output.read_text(errors="replace")[-5000:]
        return code

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        if self.is_running:
            self.kill()


class TailraceProcess(BrokerProcess):
    def command(self) -> list[str]:
        return [*super().command(), *(["--advertise", self.bootstrap] if self.bootstrap != self.listen else [])]


class KafkaProcess(BrokerProcess):
    exit_status = 128 + signal.SIGTERM

    def __init__(
        self, directory: Path, *, advertised: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, advertised=advertised, settings=settings)
        if reason := parts.missing("kafka"):
            raise RuntimeError(f"TAILRACE_COMPAT=kafka needs kafka: {reason}")
        properties = self._settings(free_port())
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
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
            "listeners": f"PLAINTEXT://{self.listen},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self.data,
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": 2000,  # so long a killed broker is not let in again
            **{f"{topic}.replication.factor": 1 for topic in internal},
            **{f"{topic}.min.isr": 1 for topic in internal[1:]},
            "offsets.topic.num.partitions": 1,
            **self.configs,
        }

    @staticmethod
    def _java(*arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{parts.kafka_jars()}/*", *arguments]

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._properties))

    def is_ready(self) -> bool:
        """It prints nothing without a logger; ready is who knows its partitions. (A port may be open well before.)"""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return self._knows_its_partitions()
        return False

    def _knows_its_partitions(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.listen, "log_level": 0})
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
