"""Those who wait cost next to nothing, and are told at once; `acks=all` waits for the disk, and nobody reads before."""

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from brokers import fetch_request, from_offset, only_partition, values_of
from nodes import LOOPS, RunningNode
from raw_client import RawClient, a_produce

from tailrace.log.disk.interface import File
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.testing.faulty_files import FaultyFile, FaultyFiles

PARKED = 1000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processor time is read as Linux tells it")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.address) as client:
            topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[topic]), 7)
        yield broker


def poll(max_wait_ms: int) -> Any:
    return fetch_request(from_offset(0), max_wait_ms=max_wait_ms)


@pytest.mark.slow
def test_a_thousand_that_wait_for_long_cost_nothing(broker: BrokerProcess) -> None:
    before = idle_share(broker)
    clients = [RawClient(broker.address) for _ in range(PARKED)]
    for client in clients:
        client.send(poll(30_000), 12)
    time.sleep(0.5)
    share = idle_share(broker, 5)
    print(f"{PARKED} parked for 30 s: {share:.2%} of a core, {before:.2%} without", file=sys.stderr)
    assert share < 0.03
    for client in clients:
        client.close()


@pytest.mark.slow
def test_a_thousand_that_ask_twice_a_second(broker: BrokerProcess) -> None:
    clients = [RawClient(broker.address) for _ in range(PARKED)]
    stop = threading.Event()
    threads = [threading.Thread(target=keep_polling, args=(clients[n::4], stop)) for n in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    share = idle_share(broker, 5)
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{PARKED} polls of 500 ms: {share:.1%} of a core", file=sys.stderr)
    assert share < 0.5
    for client in clients:
        client.close()


def idle_share(broker: BrokerProcess, seconds: float = 2) -> float:
    """What part of a core the broker takes, over some seconds."""
    cpu, began = broker.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (broker.cpu_s() - cpu) / (time.monotonic() - began)


def keep_polling(clients: list[RawClient], stop: threading.Event) -> None:
    for client in clients:
        client.send(poll(500), 12)
    while not stop.is_set():
        for client in clients:
            client.receive()
            client.send(poll(500), 12)


@pytest.mark.slow
def test_a_reader_that_waits_sees_an_append_at_once(broker: BrokerProcess, tmp_path: Path) -> None:
    took = []
    with RawClient(broker.address) as reader, RawClient(broker.address) as writer:
        for offset in range(300):
            reader.send(fetch_request(from_offset(offset), max_wait_ms=10_000), 12)
            time.sleep(0.002)
            began = time.perf_counter()
            writer.send(a_produce(b"x", acks=1), 12)
            assert values_of(only_partition(reader.receive())) == [b"x"]
            took.append(time.perf_counter() - began)
            writer.receive()
    disk = fdatasync_times(tmp_path / "disk")
    for name, times in (("append to reader", took), ("fdatasync alone", disk)):
        print(f"{name}: p50 {percentile(times, 50):.2f} ms, p99 {percentile(times, 99):.2f} ms", file=sys.stderr)
    assert statistics.median(took) < 5 * statistics.median(disk) + 0.02


def fdatasync_times(path: Path) -> list[float]:
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(300):
            file.write(b"x" * 100)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return times


def percentile(times: list[float], percent: int) -> float:
    return sorted(times)[len(times) * percent // 100] * 1e3


# A slow disk


class SlowFiles(FaultyFiles):
    """A disk that syncs when a test lets it, and takes its time for it."""

    def __init__(self) -> None:
        super().__init__(OperatingSystemFiles())
        self.sync_s = 0.0
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.synced = 0

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        return SlowFile(self, self._files.open(path, create=create))


class SlowFile(FaultyFile):
    def __init__(self, files: SlowFiles, file: File) -> None:
        super().__init__(files, file)
        self._slow = files

    def sync(self) -> None:
        assert self._slow.may_sync.wait(30)
        time.sleep(self._slow.sync_s)
        super().sync()
        self._slow.synced += 1


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_is_told_or_reads_before_the_disk_has_it(tmp_path: Path, loop: str) -> None:
    """No clock decides here: while the disk does not sync, nothing that waits for it may happen, however long."""
    files = SlowFiles()
    with RunningNode(tmp_path, files=files, loop=LOOPS[loop]) as node:
        node.create_topic()
        with RawClient(node.address) as writer, RawClient(node.address) as reader, RawClient(node.address) as other:
            writer.produce(b"first")
            reader.send(fetch_request(from_offset(1), max_wait_ms=30_000), 12)
            files.may_sync.clear()
            synced = files.synced
            assert other.produce(b"acks=1", acks=1).base_offset == 1, "which does not wait"
            writer.send(a_produce(b"acks=all", timeout_ms=30_000), 12)
            for _ in range(5):
                assert other.values() == [b"first"]
                assert reader.has_nothing(0.1)
                assert writer.has_nothing(0.1)
            assert files.synced == synced
            files.may_sync.set()
            assert values_of(only_partition(reader.receive()))[0] == b"acks=1"
            assert only_partition(writer.receive()).base_offset == 2
            assert files.synced > synced
            assert other.values() == [b"first", b"acks=1", b"acks=all"]


@pytest.mark.parametrize("loop", LOOPS)
def test_acks_all_takes_as_long_as_the_disk_and_acks_1_does_not(tmp_path: Path, loop: str) -> None:
    files = SlowFiles()
    with RunningNode(tmp_path, files=files, loop=LOOPS[loop]) as node:
        node.create_topic()
        with RawClient(node.address) as client:
            client.produce(b"first")
            files.sync_s = 0.2
            took: dict[int, list[float]] = {acks: [] for acks in (1, -1)}
            for acks, times in list(took.items()) * 3:
                began = time.monotonic()
                client.produce(b"x", acks=acks)
                times.append(time.monotonic() - began)
            files.sync_s = 0.0
    assert min(took[-1]) >= 0.2
    assert min(took[1]) < 0.2
