"""Compaction beside a producer: what it notices of it, and what a pass takes.

A topic of 2 GB in records of 1 KB, each key written ten times, is compacted by a running broker; meanwhile one batch at
a time is produced to another topic with acks=1. The process that compacts is stopped and let go on in turns, so that
whatever else happens on the machine meets both alike.
"""

import os
import signal
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import create_topic, round_trips
from tailrace.protocol.frame import encode_request
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.record import Record, encode_batch
from tailrace.testing.broker_process import free_port

TOPIC, BESIDE = "compacted", "acks"
RECORD_BYTES, BATCH_RECORDS, ROUNDS = 1000, 500, 10
PASS_S = 600
_VERSION = 9


def beside_a_producer(bench: Bench) -> list[Figure]:
    size = bench.pick(2_000, 200) * 1_000_000
    options = [f"--set=log.segment.bytes={size // 8}", "--set=log.cleaner.backoff.ms=500"]
    with bench.place.directory() as data:
        with broker_process(data, *options, "--set=log.cleaner.enable=false") as broker:
            bench.tell("compaction: a topic is filled")
            _fill(broker, size)
        metrics = free_port()
        with broker_process(data, *options, metrics=f"127.0.0.1:{metrics}") as broker:
            bench.tell("compaction: a producer beside it")
            busy, idle = _until_compacted(broker, metrics, bench.pick(2000, 500))
            figures = _metrics(metrics)
    read = figures["tailrace_compaction_read_bytes_total"]
    seconds = figures["tailrace_compaction_seconds_total"]
    memory = figures["tailrace_compaction_peak_memory_bytes"] / 1e6
    return [
        compare(
            "compaction/ack-p99",
            "ack, acks=1: p99 beside compaction",
            "µs",
            busy,
            idle,
            "while it is stopped",
            demanded=Demand("ratio", "most", 2),
            note=f"{len(busy)} turns",
        ),
        Figure("compaction/seconds", f"a pass over {read / 1e9:.1f} GB", "s", Sample.of([seconds])),
        Figure("compaction/rate", "of records of 1 KB", "MB/s", Sample.of([read / seconds / 1e6])),
        Figure(
            "compaction/memory",
            "memory of its process",
            "MB",
            Sample.of([memory]),
            demanded=Demand("ours", "most", 256),
        ),
    ]


def _fill(broker: BrokerProcess, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})])[TOPIC].result(30)
    batches = size // ROUNDS // (RECORD_BYTES * BATCH_RECORDS)
    with RawConnection(broker.host, broker.port) as connection:
        frames = [_frame(number) for number in range(batches)]
        for _ in range(ROUNDS):
            for frame in frames:
                connection.exchange(frame)


def _frame(number: int) -> bytes:
    """A batch of keys of its own."""
    value, now_ms = os.urandom(RECORD_BYTES), int(time.time() * 1000)
    records = [Record(n, now_ms, b"key %d %d" % (number, n), value) for n in range(BATCH_RECORDS)]
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=encode_batch(records))])]
    return encode_request(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), _VERSION, 0, "bench")


def _until_compacted(broker: BrokerProcess, metrics: int, number: int) -> tuple[list[float], list[float]]:
    """The p99 of each turn in µs: with the process that compacts at work, and while it is stopped."""
    busy: list[float] = []
    idle: list[float] = []
    deadline = time.monotonic() + PASS_S
    with RawConnection(broker.host, broker.port) as connection:
        create_topic(connection, BESIDE)
        round_trips(connection, BESIDE, 1, number)
        while not _metrics(metrics)["tailrace_compaction_passes_total"]:
            assert time.monotonic() < deadline, "the pass does not end"
            for child in _children(broker):
                at_work = percentile(round_trips(connection, BESIDE, 1, number), 99)
                with suppress(ProcessLookupError):  # it was the last turn
                    os.kill(child, signal.SIGSTOP)
                    try:
                        idle.append(1e6 * percentile(round_trips(connection, BESIDE, 1, number), 99))
                        busy.append(1e6 * at_work)
                    finally:
                        os.kill(child, signal.SIGCONT)
    return busy, idle


def _children(broker: BrokerProcess) -> list[int]:
    tasks = Path(f"/proc/{broker.process.pid}/task").glob("*/children")
    return [int(number) for task in tasks for number in task.read_text().split()]


def _metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("tailrace_compaction")}
