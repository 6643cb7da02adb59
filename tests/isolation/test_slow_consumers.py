"""Consumers that stop reading take nothing from those that do not: neither their share, nor the broker's memory."""

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from brokers import fetch_request, from_offset
from raw_client import RawClient, a_produce

from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

STUCK, HEALTHY = 50, 5
ROUND_S = 1.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux does"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.address) as client:
            topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[topic]), 7)
            for _ in range(32):
                client.produce(b"x" * 1_000_000)
            for _ in range(200):
                client.ask(a_produce(b"y" * 20_000, partition=1), 12)
        yield broker


def stuck_client(broker: BrokerProcess, partition: int) -> RawClient:
    """It asks for much, again and again, and reads nothing."""
    client = RawClient(broker.address, receive_buffer=4096)
    for _ in range(5):
        client.send(fetch_request(from_offset(0, partition, 50 << 20), max_wait_ms=0), 12)
    return client


def throughput(broker: BrokerProcess) -> tuple[float, float]:
    """Bytes a second that healthy clients get together, and the broker's processor time for each gigabyte."""
    received = [0] * HEALTHY
    stop = time.monotonic() + ROUND_S

    def consume(number: int) -> None:
        request = fetch_request(from_offset(0, 0, 8 << 20), max_wait_ms=0)
        with RawClient(broker.address) as client:
            while time.monotonic() < stop:
                client.send(request, 12)
                received[number] += len(client.receive_unread())

    cpu, began = broker.cpu_s(), time.monotonic()
    threads = [threading.Thread(target=consume, args=(number,)) for number in range(HEALTHY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(received)
    return total / (time.monotonic() - began), (broker.cpu_s() - cpu) / total * (1 << 30)


def test_those_who_do_not_read_cost_nothing(broker: BrokerProcess) -> None:
    """Processor time, which says more than any throughput on a machine that does other things, too."""
    clients = [stuck_client(broker, number % 2) for number in range(STUCK)]
    time.sleep(0.5)
    cpu, began = broker.cpu_s(), time.monotonic()
    time.sleep(4)
    share = (broker.cpu_s() - cpu) / (time.monotonic() - began)
    print(f"{STUCK} stuck alone: {share:.2%} of a core", file=sys.stderr)
    assert share < 0.03
    for client in clients:
        client.reset()


def test_healthy_ones_keep_their_throughput(broker: BrokerProcess) -> None:
    throughput(broker)  # everything is warm
    alone, beside = [], []
    memory = []
    for _ in range(5):  # in turns, so that what else happens on the machine concerns both
        alone.append(throughput(broker))
        before = broker.rss_bytes()
        clients = [stuck_client(broker, number % 2) for number in range(STUCK)]
        time.sleep(0.3)
        beside.append(throughput(broker))
        memory.append(broker.rss_bytes() - before)
        for client in clients:
            client.reset()
    ratios = [with_stuck[0] / without[0] for without, with_stuck in zip(alone, beside, strict=True)]
    cost = [statistics.median(one[1] for one in runs) for runs in (alone, beside)]
    print(
        f"{STUCK} stuck beside {HEALTHY} healthy: {statistics.median(ratios):.0%} of {alone[0][0] / 1e6:.0f} MB/s; "
        f"{cost[0]:.2f} and {cost[1]:.2f} s of the broker for a GiB; {max(memory) >> 20} MiB more",
        file=sys.stderr,
    )
    assert max(ratios) >= 0.9  # of a few: on a busy machine one second is not like the next
    assert max(memory) < 64 << 20
