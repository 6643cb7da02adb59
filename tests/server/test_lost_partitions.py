"""A broker process on a directory that has lost a partition, as clients and the operator see it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tailrace.log.files.directory_state import UNSAVED_OFFSETS_MAX


def server(broker: BrokerProcess) -> str:
    return broker.bootstrap


def produced(broker: BrokerProcess, count: int, topic: str = "orders") -> list[int | str]:
    """The offset of each message, or the name of the error."""
    results: list[int | str] = []
    producer = Producer({"bootstrap.servers": server(broker), "message.timeout.ms": 2000})

    def delivered(error: KafkaError | None, message: object) -> None:
        results.append(error.name() if error is not None else message.offset())  # type: ignore[attr-defined]

    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0, on_delivery=delivered)
    producer.flush()
    return results


def consumed(broker: BrokerProcess, offset: int, count: int) -> list[int | None]:
    consumer = Consumer({"bootstrap.servers": server(broker), "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, offset)])
    messages = consumer.consume(count, timeout=20)
    consumer.commit(offsets=[TopicPartition("orders", 0, offset + count)], asynchronous=False)
    consumer.close()
    return [message.offset() for message in messages]


def tailrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def stop(broker: BrokerProcess, how: str) -> None:
    broker.end(signal.SIGKILL if how == "kill" else signal.SIGTERM)


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_partition_that_is_lost_gives_no_offset_twice(tmp_path: Path, how: str) -> None:
    """Although it was killed before its first checkpoint: its first flush has named it."""
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        assert produced(broker, 5) == list(range(5))
        stop(broker, how)
    shutil.rmtree(data / "orders-0")
    with BrokerProcess(data) as broker:
        assert set(produced(broker, 1)) <= {"KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"}
        assert produced(broker, 1, "others") == [0]
        consumer = Consumer({"bootstrap.servers": server(broker), "group.id": "g"})
        with pytest.raises(KafkaException, match=r"KAFKA_STORAGE_ERROR|disk error|timed out"):
            consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=2)
        consumer.close()
        assert "orders-0" in broker.said
        assert "--accept-loss" in broker.said
    assert tailrace("log", "verify", data).returncode == 1
    assert tailrace("log", "repair", data, "--apply", "--accept-loss").returncode == 0
    assert tailrace("log", "verify", data).returncode == 0
    with BrokerProcess(data) as broker:
        start = 5 if how == "clean" else UNSAVED_OFFSETS_MAX
        assert produced(broker, 2) == [start, start + 1]
        assert consumed(broker, start, 2) == [start, start + 1]


@pytest.mark.parametrize("name", ["__consumer_offsets-0", "__tailrace_metadata-0"])
def test_without_a_log_of_its_own_the_broker_does_not_start_until_it_is_given_up(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        produced(broker, 5)
        assert consumed(broker, 0, 5) == list(range(5))
    shutil.rmtree(data / name)
    refused = tailrace("serve", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "off")
    assert refused.returncode != 0
    assert name in refused.stderr + refused.stdout
    assert "--apply --accept-loss --internal" in refused.stderr + refused.stdout
    assert tailrace("log", "repair", data, "--apply", "--accept-loss", "--internal").returncode == 0
    with BrokerProcess(data) as broker:
        assert produced(broker, 1) == [5]
        assert consumed(broker, 0, 6) == list(range(6))
