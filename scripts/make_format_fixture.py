#!/usr/bin/env python
"""Makes tests/data/format-N: data directories as today's release leaves them, and what is in them.

    python scripts/make_format_fixture.py tests/data/format-2

Two directories: `stopped`, after a clean stop, and `killed`, after a kill -9 of a broker that went on from there, and
the loss of what a log had not synced and the journal has.
Beside them `expected.json`, written from what was sent and answered, not from what can be read again. Later releases
prove by tests/server/test_format.py that they open them. Each release adds a directory of its own, made by its own
code, and never changes one that is there (docs/FORMAT.md).
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tailrace.records.batch import HEADER_SIZE, split
from tailrace.testing import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FOR_EVER = {"retention.ms": "-1"}  # or a later release deletes what it should find
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (2, {**FOR_EVER, "max.message.bytes": "2000000"}),
    "keyed": (1, {**FOR_EVER, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.25"}),
    "rolled": (1, {**FOR_EVER, "segment.ms": "1"}),
    "trimmed": (1, {**FOR_EVER, "segment.ms": "1"}),
    "repaired": (1, {**FOR_EVER, "segment.ms": "1"}),
    "stamped": (1, {**FOR_EVER, "message.timestamp.type": "LogAppendTime"}),
    "journaled": (1, FOR_EVER),
    "untouched": (3, FOR_EVER),
    "gone": (1, FOR_EVER),
}
Expected = dict[str, Any]


@contextmanager
def broker(data: Path, number: signal.Signals = signal.SIGTERM) -> Iterator[str]:
    """Its address. It is ended by this signal."""
    process = BrokerProcess(data, configs={"tailrace.journal.bytes": "65536"})
    try:
        yield process.start().bootstrap
    finally:
        process.end(number)


class Ledger:
    """What was sent and acknowledged, as `expected.json` has it."""

    def __init__(self) -> None:
        self.expected: Expected = {
            "topics": {
                name: {"configs": configs, "partitions": [_empty() for _ in range(count)]}
                for name, (count, configs) in TOPICS.items()
            },
            "groups": {},
            "broker_configs": {},
        }

    def partition(self, topic: str, partition: int = 0) -> Expected:
        found: Expected = self.expected["topics"][topic]["partitions"][partition]
        return found

    def send(self, address: str, topic: str, *records: dict[str, Any], codec: str = "none", partition: int = 0) -> None:
        """All of them in one batch, if there is time."""

        def delivered(record: dict[str, Any], error: Any, message: Any) -> None:
            assert error is None, error
            entry = {"offset": message.offset(), "timestamp": message.timestamp()[1]}
            entry |= {name: _encoded(record.get(name)) for name in ("key", "value")}
            entry["headers"] = [[name, _encoded(value)] for name, value in record.get("headers", [])]
            here = self.partition(topic, partition)
            here["records"].append(entry)
            here["end"] = message.offset() + 1

        settings = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 50,
        }
        producer = Producer(settings)
        for record in records:
            producer.produce(topic, partition=partition, on_delivery=partial(delivered, record), **record)
        assert producer.flush(20) == 0

    def send_segments(self, address: str, topic: str, count: int) -> None:
        """One record in each: the next append begins another segment."""
        for number in range(count):
            self.send(address, topic, {"value": f"{topic} {number}"})
            time.sleep(0.01)

    def send_one_by_one(self, address: str, topic: str, count: int) -> None:
        """Each waits for the disk."""
        for number in range(count):
            self.send(address, topic, {"value": f"{topic} {number}"})

    def commit(self, address: str, group: str, topic: str, offset: int, metadata: str = "") -> None:
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        place = TopicPartition(topic, 0, offset, metadata)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
        self.expected["groups"].setdefault(group, {})[topic] = [offset, metadata]


def _encoded(value: str | bytes | None) -> str | None:
    return None if value is None else b64encode(value.encode() if isinstance(value, str) else value).decode()


def _empty() -> Expected:
    return {"start": 0, "end": 0, "records": [], "gaps": []}


def fill(address: str, ledger: Ledger) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    wanted = [NewTopic(name, count, 1, config=configs) for name, (count, configs) in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result(20)
    for partition, codec in enumerate(CODECS):
        records = [{"key": f"{codec} {n}", "value": f"{codec} value {n} " * 5} for n in range(6)]
        ledger.send(address, "codecs", *records, codec=codec, partition=partition % 2)
    ledger.send(address, "codecs", {"value": None, "key": b"\xff\x00", "headers": [("trace", b"\x01"), ("trace", b"")]})
    ledger.send(address, "keyed", *({"key": f"user {n}", "value": f"name {n}"} for n in range(8)))
    ledger.send(address, "stamped", {"value": "when it came"})
    ledger.send(address, "gone", {"value": "never seen again"})
    for topic in ("rolled", "trimmed", "repaired"):
        ledger.send_segments(address, topic, 5)
    for future in admin.delete_records([TopicPartition("trimmed", 0, 3)]).values():
        future.result(20)
    trimmed = ledger.partition("trimmed")
    trimmed["start"], trimmed["records"] = 3, trimmed["records"][3:]
    admin.delete_topics(["gone"])["gone"].result(20)
    del ledger.expected["topics"]["gone"]
    ledger.commit(address, "billing", "rolled", 2, "half way")
    ledger.commit(address, "billing", "codecs", 4)
    ledger.commit(address, "reports", "rolled", 1)
    ledger.commit(address, "reports", "rolled", 5)
    entry = ConfigEntry("log.retention.bytes", "1000000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
    ledger.expected["broker_configs"]["log.retention.bytes"] = "1000000000"


def fill_journal(address: str, data: Path, ledger: Ledger) -> tuple[Path, int]:
    """Leaves in the journal what a log's file need not have: the file, and how much of it is there at any rate."""
    log = data / "journaled-0" / f"{0:020d}.log"
    while not (data / "tailrace.journal").exists():
        ledger.send_one_by_one(address, "journaled", 5)
    time.sleep(1)  # until it is in use
    synced = log.stat().st_size
    ledger.send_one_by_one(address, "journaled", 3)
    return log, synced


def rot_and_repair(data: Path, ledger: Ledger) -> None:
    """The third record of a log is lost, and the last one; the log gets over both."""
    segments = sorted((data / "repaired-0").glob("*.log"))
    for path in (segments[2], segments[4]):
        content = bytearray(path.read_bytes())
        position, _ = next(iter(split(bytes(content))))
        content[position + HEADER_SIZE : position + HEADER_SIZE + 6] = b"rotten"
        path.write_bytes(content)
    subprocess.run([sys.executable, "-m", "tailrace", "log", "repair", str(data), "--apply"], check=True)
    repaired = ledger.partition("repaired")
    repaired["gaps"] = [[2, 2], [4, 4]]
    repaired["records"] = [record for record in repaired["records"] if record["offset"] not in (2, 4)]


def keep(data: Path, ledger: Ledger, target: Path, all_expected: Expected) -> None:
    shutil.copytree(data, target / data.name, ignore=shutil.ignore_patterns(".lock", "*.said"))
    all_expected[data.name] = json.loads(json.dumps(ledger.expected))


def main(target: Path) -> None:
    if target.exists():
        sys.exit(f"{target} is there: a fixture is made once, and never changed")
    ledger = Ledger()
    all_expected: Expected = {}
    with tempfile.TemporaryDirectory() as scratch:
        stopped = Path(scratch) / "stopped"
        with broker(stopped) as address:
            fill(address, ledger)
        rot_and_repair(stopped, ledger)
        with broker(stopped) as address:
            ledger.send(address, "repaired", {"value": "after the repair"})
        keep(stopped, ledger, target, all_expected)
        killed = Path(shutil.copytree(stopped, Path(scratch) / "killed"))
        with broker(killed, signal.SIGKILL) as address:
            ledger.send_segments(address, "rolled", 2)
            ledger.send(address, "keyed", {"key": "user 100", "value": "late"}, codec="zstd")
            ledger.commit(address, "billing", "rolled", 6, "all but one")
            log, synced = fill_journal(address, killed, ledger)
        with log.open("r+b") as file:
            file.truncate(synced)
        keep(killed, ledger, target, all_expected)
    (target / "expected.json").write_text(json.dumps(all_expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
