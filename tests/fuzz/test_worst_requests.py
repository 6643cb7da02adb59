"""The most that one request can cost: how long it holds the loop, in processor time, and how much memory it takes."""

import gc
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from fuzz.worst import COMMITTED, GROUPS, MANY, MANY_PARTITIONS, TOPICS, WITH_DATA, commit_request, worst_requests
from nodes import RunningNode
from raw_client import RawClient, a_produce

from tailrace.broker.apis.registry import APIS
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.server.net.connection import Connection
from tailrace.server.run import spare_the_collector

LOOP_S = 0.1  # what we want: no longer than this, on an idle machine
SLACK = 4  # for machines that are slower, or busy: processor time grows with that, too
MEMORY = 64 << 20


def prepare(client: RawClient) -> None:
    for start in range(0, TOPICS, 1000):
        topics = [
            CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(start, start + 1000)
        ]
        client.ask(CreateTopicsRequest(topics=topics), 7)
    many = CreatableTopic(name=MANY, num_partitions=MANY_PARTITIONS, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[many]), 7)
    for index in range(WITH_DATA):
        client.ask(a_produce(b"x", topic=MANY, partition=index), 12)
    for number in range(GROUPS):
        client.ask(commit_request(f"group-{number}", COMMITTED), 8)


class Stopwatch:
    """Times what a connection does in one callback, in processor time of the loop's thread."""

    def __init__(self) -> None:
        self.longest = 0.0

    def times(self, function: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.longest = max(self.longest, time.thread_time() - began)

        return timed


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    stopwatch = Stopwatch()
    for name in ("_readable", "answer"):
        monkeypatch.setattr(Connection, name, stopwatch.times(getattr(Connection, name)))
    return stopwatch


@pytest.fixture
def spared_collector() -> Iterator[None]:
    """As `tailrace serve` does it."""
    before = gc.get_threshold()
    spare_the_collector()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("spared_collector")
def test_no_request_holds_the_loop_for_long(tmp_path: Path, stopwatch: Stopwatch) -> None:
    costs: dict[str, float] = {}
    with RunningNode(tmp_path) as node, RawClient(node.address, timeout_s=60) as client:
        prepare(client)
        for name, (request, version) in worst_requests().items():
            stopwatch.longest = 0
            client.send(request, version)
            client.receive_unread()
            node.on_loop(lambda: None)  # the answer comes before the callback that sends it has ended, and is timed
            costs[name] = stopwatch.longest
    for name, cost in sorted(costs.items(), key=lambda item: -item[1]):
        print(f"{cost * 1e3:6.0f} ms  {name}", file=sys.stderr)
    assert min(costs.values()) > 0, "one was not timed"
    assert {name: cost for name, cost in costs.items() if cost > SLACK * LOOP_S} == {}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if sys.platform != "linux":
        pytest.skip("memory is counted as Linux does")
    with BrokerProcess(tmp_path_factory.mktemp("worst") / "data") as broker:
        with RawClient(broker.address) as client:
            prepare(client)
        yield broker


def test_no_request_takes_much_more_memory_than_its_bytes(broker: BrokerProcess) -> None:
    too_much: dict[str, str] = {}
    with RawClient(broker.address, timeout_s=60) as client, RawClient(broker.address, timeout_s=10) as other:
        for name, (request, version) in worst_requests().items():
            frame = client.frame(request, version)
            broker.forget_peak()
            before = broker.rss_bytes()
            client.socket.sendall(frame)
            other.ask(ApiVersionsRequest(), 3)
            client.receive_unread()
            growth = broker.peak_bytes() - before
            print(f"{growth >> 20:5} MiB  {len(frame) >> 10:6} KiB  {name}", file=sys.stderr)
            if growth > 4 * len(frame) + MEMORY:
                too_much[name] = f"{growth} for {len(frame)} bytes"
    assert too_much == {}


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: APIS[key].key.name.lower())
def test_lengths_and_counts_that_are_only_claimed_cost_nothing(broker: BrokerProcess, key: int) -> None:
    broker.forget_peak()
    before = broker.rss_bytes()
    limit = min(APIS[key].frame_bytes_max, 100 << 20)
    clients = [RawClient(broker.address) for _ in range(40)]
    for client in clients:
        client.socket.sendall(struct.pack(">ihhih", limit, key, 1, 1, -1) + b"\x7f\xff\xff\xff" * 10)
    with RawClient(broker.address) as other:
        other.ask(ApiVersionsRequest(), 3)
    assert broker.peak_bytes() - before < 16 << 20
    for client in clients:
        client.close()


@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
def test_as_many_tiny_elements_as_fit(broker: BrokerProcess, size: int) -> None:
    """Each is one byte or two; reading all of them would take hundreds of megabytes."""
    for key in sorted(APIS):
        length = min(size, APIS[key].frame_bytes_max)
        for version in range(14):
            body = struct.pack(">hhih", key, version, 1, -1) + b"\0" + bytes([0xFF, 0xFF, 0xFF, 0x01]) + b"\1" * length
            frame = struct.pack(">i", min(length, len(body))) + body[:length]
            broker.forget_peak()
            before = broker.rss_bytes()
            with RawClient(broker.address, timeout_s=20) as client:
                try:
                    client.socket.sendall(frame)
                    client.socket.settimeout(0.5)
                    client.socket.recv(1)
                except OSError:
                    pass
            assert broker.peak_bytes() - before < 4 * length + MEMORY
    with RawClient(broker.address) as other:
        other.ask(ApiVersionsRequest(), 3)


def test_a_large_frame_takes_its_own_size_and_little_more(broker: BrokerProcess) -> None:
    with RawClient(broker.address, timeout_s=60) as client:
        frame = client.frame(a_produce(b"x" * (60 << 20), topic=MANY), 12)
        broker.forget_peak()
        before = broker.rss_bytes()
        client.socket.sendall(frame)
        client.receive()  # it is larger than a message may be; that is said when it is there
        assert broker.peak_bytes() - before < 2 * len(frame) + MEMORY
