"""Apache Kafka as a process: one node of KRaft, with the defaults of its broker and the JVM options of its script.

Only what one node needs is set: who it is, where it listens and keeps its data, and one copy of internal topics. No
logger is on the class path, which spares it the writing of logs. Formatting the directory is not part of its start.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.harness.broker_process import BrokerProcess, die_with_parent
from bench.peers.first_ack import wait_for_first_ack
from tailrace.spark.pipelines.session.java import NoJava, find_in
from tailrace.testing.broker_process import HOST, free_port

VERSION = "4.3.1"
SYNCING = {"log.flush.interval.messages": "1"}
_CLUSTER = "fGb4nUr3TsKzW1Q0yXbq9A"
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_BROKER_HEAP = ("-Xmx1G", "-Xms1G")


def missing() -> str | None:
    """Why Kafka cannot be run here; None where it can."""
    try:
        find_in(None)
    except NoJava as error:
        return str(error)
    tools = jars() / f"kafka-tools-{VERSION}.jar"
    return None if tools.exists() else f"no {tools}; scripts/fetch-kafka gets it"


def jars() -> Path:
    return Path(os.environ.get("TAILRACE_KAFKA_JARS") or Path.home() / f".cache/tailrace/kafka-{VERSION}")


def java(*arguments: str, heap: tuple[str, ...] = ("-Xmx512M",)) -> list[str]:
    """A command; the heap is what the scripts of the tools give them."""
    return ["java", *heap, *_JVM, "-cp", f"{jars()}/*", *arguments]


class KafkaProcess(BrokerProcess):
    """Formats the directory when it is made, so that this is no part of the start."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(str(directory / "data"), port=free_port())
        self._properties = directory / "server.properties"
        directory.mkdir()
        lines = (f"{key}={value}\n" for key, value in self._settings(settings).items())
        self._properties.write_text("".join(lines))
        command = java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties))
        subprocess.run(command, check=True, capture_output=True)

    def _settings(self, more: Mapping[str, str] | None) -> dict[str, object]:
        controller = f"{HOST}:{free_port()}"
        internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.listen},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.listen}",
            "log.dirs": self.data,
            **{f"{topic}.replication.factor": 1 for topic in internal},
            **{f"{topic}.min.isr": 1 for topic in internal[1:]},
            **(more or {}),
        }

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self._properties), heap=_BROKER_HEAP)

    def close(self) -> None:
        """At once: its data are not needed any more."""
        if self.is_running:
            self.kill()


@contextmanager
def kafka_process(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A broker that has acknowledged a message, until the block ends."""
    broker = KafkaProcess(directory, settings).start(wait=False)
    try:
        wait_for_first_ack(broker)
        yield broker
    finally:
        broker.close()


def start_bound(command: list[str], **options: object) -> "subprocess.Popen[bytes]":
    """A process that does not outlive us, however we end."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, preexec_fn=die_with_parent, **(quiet | options))  # type: ignore[call-overload,no-any-return]


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kills it: its data are not needed any more."""
    process.kill()
    process.wait()
