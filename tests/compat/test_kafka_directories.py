"""Apache Kafka's data directory and ours: neither broker opens the other's, or changes a byte of it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from compat.brokers import KafkaProcess, TailraceProcess
from compat.clients.confluent import ConfluentClient
from confluent_kafka import Producer

from tailrace.log.directory.admission import lock_directory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import DirectoryInUse

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.timeout(180)]

REFUSED = 5


def everything(path: Path) -> dict[Path, tuple[int, bytes]]:
    """When each name in a directory, and the directory itself, was last changed, and the content of files."""
    found = [path, *path.rglob("*")]
    return {one: (one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"") for one in found}


def tailrace(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=KafkaProcess.start_s)
    return done.returncode, done.stdout + done.stderr


def serve(data: Path) -> tuple[int, str]:
    return tailrace("serve", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "off")


def send(address: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(KafkaProcess.start_s) == 0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """A Kafka that runs, with a topic."""
    broker = KafkaProcess(tmp_path_factory.mktemp("compat") / "kafka")
    broker.start()
    with closing(broker):
        with closing(ConfluentClient(broker.bootstrap)) as client:
            client.create_topic("orders")
        send(broker.bootstrap, b"one", b"two")
        yield broker


def test_the_directory_of_a_running_kafka_is_refused_and_its_lock_is_seen(kafka: KafkaProcess) -> None:
    code, said = serve(kafka.data)
    assert (code, "is Apache Kafka's data directory" in said) == (REFUSED, True), said
    assert not (kafka.data / "tailrace.format").exists()
    with pytest.raises(DirectoryInUse):
        lock_directory(OperatingSystemFiles(), str(kafka.data))
    send(kafka.bootstrap, b"three")


@pytest.mark.parametrize("is_clean", [False, True])
def test_the_directory_of_a_stopped_kafka_is_refused_and_stays_as_it_is(kafka: KafkaProcess, is_clean: bool) -> None:
    kafka.stop() if is_clean else kafka.kill()
    before = everything(kafka.data)
    code, said = serve(kafka.data)
    assert (code, "is Apache Kafka's data directory" in said) == (REFUSED, True), said
    assert tailrace("log", "repair", kafka.data, "--apply")[0] == REFUSED
    assert tailrace("log", "verify", kafka.data / "orders-0")[0] == 0
    code, said = tailrace("log", "dump", kafka.data / "orders-0")
    assert (code, "one" in said) == (0, True)
    assert everything(kafka.data) == before
    kafka.start()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[TailraceProcess]:
    broker = TailraceProcess(tmp_path / "tailrace")
    broker.start()
    with closing(broker):
        send(broker.bootstrap, b"one")
        yield broker


def run_kafka_on(ours: TailraceProcess, tmp_path: Path, *, is_formatted: bool) -> tuple[int, str]:
    """The exit code of a Kafka whose data directory is ours, and what it says."""
    kafka = KafkaProcess(tmp_path / "kafka")
    if is_formatted:
        for file in kafka.data.iterdir():
            shutil.copy(file, ours.data)
    shutil.rmtree(kafka.data)
    kafka.data.symlink_to(ours.data)
    done = subprocess.run(kafka.command(), capture_output=True, text=True, timeout=KafkaProcess.start_s)
    return done.returncode, done.stdout + done.stderr


def test_kafka_refuses_a_directory_of_ours(ours: TailraceProcess, tmp_path: Path) -> None:
    ours.stop()
    before = everything(ours.data)
    code, said = run_kafka_on(ours, tmp_path, is_formatted=False)
    assert code != 0, said
    assert everything(ours.data) == before


def test_kafka_does_not_start_on_a_directory_that_our_broker_has_open(ours: TailraceProcess, tmp_path: Path) -> None:
    """Although the directory was formatted for Kafka: only the lock is left to keep it out."""
    code, said = run_kafka_on(ours, tmp_path, is_formatted=True)
    assert code != 0, said
    send(ours.bootstrap, b"two")
    ours.restart()
    send(ours.bootstrap, b"three")
    with closing(ConfluentClient(ours.bootstrap)) as client, client.consumer("orders") as consumer:
        assert [each.message.value for each in consumer.take(3)] == [b"one", b"two", b"three"]
