"""Rot in a running broker, from the moment it sets in to its repair, as its operator and its clients see it."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import waits
from broker_process import BrokerProcess
from brokers import fetch_request, from_offset, only_partition, values_of
from raw_client import RawClient

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.records.batch import HEADER_SIZE, split

SCRUB = ["--set", "tailrace.scrub.bytes.per.second=1073741824", "--set", "tailrace.scrub.interval.ms=1000"]
RECORDS = 12
WAIT_S = 30


def metric(broker: BrokerProcess, name: str) -> float:
    found = re.search(r"http://\S+/metrics", broker.said)
    assert found, broker.said
    with urllib.request.urlopen(found[0]) as answer:
        (line,) = [line for line in answer.read().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def until(broker: BrokerProcess, name: str, value: float) -> None:
    waits.until(lambda: metric(broker, name) == value, WAIT_S, poll_s=0.05)


def consumed(broker: BrokerProcess, first: int, count: int) -> tuple[list[bytes], int | None]:
    """What confluent-kafka reads from an offset on, up to an error."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition("orders", 0, first)])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                return values, error.code()
            if message is not None:
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values, None


def command(*arguments: object, code: int) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *map(str, arguments), "--json"], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_rot_is_found_reported_refused_repaired_and_passed_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    values = [b"value %d" % number for number in range(RECORDS)]
    with BrokerProcess(data, *SCRUB, metrics="127.0.0.1:0") as broker, RawClient(broker.address) as client:
        configs = [CreatableTopicConfig(name="segment.ms", value="1")]
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, configs=configs)
        client.ask(CreateTopicsRequest(topics=[topic]), 7)
        for number in range(0, RECORDS, 2):
            client.produce(values[number])
            client.produce(values[number + 1])
            time.sleep(0.005)
        assert consumed(broker, 0, RECORDS) == (values, None)
        bad = spoil(sorted((data / "orders-0").glob("*.log"))[1])
        until(broker, "tailrace_damaged_ranges", 1)
        while "corruption found" not in broker.said:  # which the loop says, when it hears of it from the thread
            time.sleep(0.01)
        assert metric(broker, "tailrace_scrubbed_bytes_total") > 0
        assert re.search(rf"orders-0/\d+.log is damaged at byte \d+ \(\d+ bytes\): offsets {bad} to {bad}", broker.said)
        assert refused(client, bad) == ErrorCode.CORRUPT_MESSAGE
        for offset in set(range(RECORDS)) - {bad}:
            assert client.values(offset=offset)[0] == values[offset]
        before, error = consumed(broker, 0, RECORDS)
        assert (before, error) == (values[:bad], ErrorCode.CORRUPT_MESSAGE)
        assert consumed(broker, bad + 1, RECORDS - bad - 1) == (values[bad + 1 :], None)
        assert broker.stop() == 0
    last = spoil(sorted((data / "orders-0").glob("*.log"))[-1], -1)
    assert last == RECORDS - 1
    sound = logs(data)
    plan = command("log", "repair", data, code=1)
    assert (plan["applied"], plan["offsets_lost"]) == (False, 2)
    assert logs(data) == sound
    repaired = command("log", "repair", data, "--apply", code=0)
    assert repaired["after"]["healthy"]
    with BrokerProcess(data, *SCRUB, metrics="127.0.0.1:0") as broker:
        assert f"orders-0: offset {bad} is lost, and given up by a repair at " in broker.said
        until(broker, "tailrace_recorded_gaps", 2)
        until(broker, "tailrace_damaged_ranges", 0)
        assert consumed(broker, 0, RECORDS - 2) == ([*values[:bad], *values[bad + 1 : last]], None)
        assert end_seen(broker, last) == RECORDS, "who stands at what is lost at the end gets on"
        with RawClient(broker.address) as client:
            assert client.values(offset=bad)[0] == values[bad + 1]
            assert client.produce(b"more").base_offset == RECORDS
    others = {path: content for path, content in sound.items() if b"rotten" not in content}
    assert len(others) == len(sound) - 1
    assert others.items() <= logs(data).items(), "nothing else has changed"


def end_seen(broker: BrokerProcess, first: int) -> int:
    """The offset at which confluent-kafka says that it has reached the end, if it begins at this one."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    host, port = broker.address
    settings = {"bootstrap.servers": f"{host}:{port}", "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, first)])
    try:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error, offset = message.error(), message.offset()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF
        assert offset is not None
        return offset
    finally:
        consumer.close()


def spoil(path: Path, batch: int = 0) -> int:
    """One batch of many; returns its offset."""
    position, header = list(split(path.read_bytes()))[batch]
    with path.open("r+b") as file:
        file.seek(position + HEADER_SIZE)
        file.write(b"rotten")
    return header.base_offset


def refused(client: RawClient, offset: int) -> int:
    answer = only_partition(client.ask(fetch_request(from_offset(offset), max_wait_ms=0), 12))
    assert not values_of(answer)
    return int(answer.error_code)


def logs(data: Path) -> dict[Path, bytes]:
    """All but the last ones, which go on."""
    return {path: path.read_bytes() for path in sorted((data / "orders-0").glob("*.log"))[:-1]}
