"""One client: requests start as they arrive, answers go in their order, and what is no request ends it alone."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import a_batch, fetch_request, from_offset, only_partition, produce_request, values_of
from nodes import LOOPS, RunningNode
from raw_client import NOW_AND_THEN_MS, RawClient, a_produce
from waits import until

from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Call, Endpoint
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.log.disk.os_files import OperatingSystemFile
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frame import decode_response
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.server.net import connection as connection_module
from tailrace.server.net.connection import PIPELINED_MAX, TURN_S, Connection
from tailrace.server.net.outbox import Outbox


@pytest.fixture(params=LOOPS)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, loop=LOOPS[request.param]) as node:
        node.create_topic()
        yield node


@pytest.fixture
def client(node: RunningNode) -> Iterator[RawClient]:
    with RawClient(node.address) as client:
        yield client


def park(max_wait_ms: int = 30_000, offset: int = 0, **fields: Any) -> Any:
    return fetch_request(from_offset(offset, max_bytes=64 << 20), max_wait_ms=max_wait_ms, **fields)


def watchers(node: RunningNode) -> int:
    partition = node.node.broker.partition("orders", 0)
    assert partition is not None
    return len(partition.waiting_fetches)


def is_flushed(node: RunningNode) -> bool:
    partition = node.node.broker.partition("orders", 0)
    assert partition is not None
    assert partition.log is not None
    return bool(partition.log.high_watermark == partition.log.end_offset)


def test_bytes_in_any_pieces(node: RunningNode, client: RawClient) -> None:
    whole = client.frame(ApiVersionsRequest(), 3) + client.frame(a_produce(b"one", b"two"), 12)
    for position in range(len(whole)):
        client.socket.sendall(whole[position : position + 1])
    client.receive()
    assert only_partition(client.receive()).error_code == 0
    assert client.values() == [b"one", b"two"]


def test_what_a_client_has_appended_counts_where_it_cannot_be_answered(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.produce(b"before", acks=1)
    with RawClient(node.address) as reader:
        reader.send(park(offset=1), 12)
        node.until(lambda: watchers(node) == 1)
        monkeypatch.setattr(Outbox, "send_at_once", lambda outbox, _: outbox._on_error(BrokenPipeError()))
        client.send(a_produce(b"after", acks=1), 12)
        assert values_of(only_partition(reader.receive())) == [b"after"]
    assert client.socket.recv(1) == b"", "it is gone"
    assert node.on_loop(lambda: node.node.broker.counters.topic("orders").records_in) == 2


def test_what_was_sent_is_read_as_it_was(node: RunningNode, client: RawClient) -> None:
    values = [os.urandom(size) for size in (1, 1000, 40_000, 300_000, 900_000)]
    for value in values:
        client.produce(value)
    assert client.values() == values


def test_a_batch_that_was_received_in_a_shared_buffer_is_not_mixed_up(node: RunningNode) -> None:
    clients = [RawClient(node.address) for _ in range(10)]
    frames = [one.frame(a_produce(bytes([n]) * 3000), 12) for n, one in enumerate(clients)]
    for start in range(0, len(frames[0]), 500):
        for one, frame in zip(clients, frames, strict=True):
            one.socket.sendall(frame[start : start + 500])
    for one in clients:
        assert only_partition(one.receive()).error_code == 0
        one.close()
    with RawClient(node.address) as reader:
        assert sorted(reader.values()) == [bytes([n]) * 3000 for n in range(10)]


@pytest.mark.parametrize("size", [200_000, 900_000])
def test_large_requests_are_handled_the_short_way_however_they_arrive(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    values = [os.urandom(size) for _ in range(8)]
    client.produce(values[0])
    client.produce(values[1], acks=1)  # from then on both are known
    long_way: list[memoryview] = []
    real = Connection._start

    def start(connection: Connection, frame: memoryview, now_ms: int, steady_ms: int) -> None:
        long_way.append(frame)
        real(connection, frame, now_ms, steady_ms)

    monkeypatch.setattr(Connection, "_start", start)
    for number, value in enumerate(values[2:]):
        frame = client.frame(a_produce(value, acks=(1, -1)[number % 2]), 12)
        for at in range(0, len(frame), step := size if number < 2 else 150_000):
            client.socket.sendall(frame[at : at + step])
            time.sleep(0.001)  # so that it does not come in one piece
        assert only_partition(client.receive()).error_code == 0
        assert node.on_loop(lambda: node.node.budget.total) == 0
    assert not long_way
    assert client.values() == values


# Order


def test_answers_go_in_the_order_of_their_requests(node: RunningNode, client: RawClient) -> None:
    parts = []
    for _ in range(10):
        parts += [client.frame(a_produce(b"x"), 12), client.frame(ApiVersionsRequest(), 3)]
    client.socket.sendall(b"".join(parts))
    offsets = []
    for _ in range(10):
        offsets.append(only_partition(client.receive()).base_offset)  # each checks its correlation id
        assert client.receive().error_code == 0
    assert offsets == list(range(10))


def test_pipelined_produces_share_a_flush(node: RunningNode, client: RawClient) -> None:
    before = node.on_loop(lambda: sum(node.node.metrics.flushes.counts))
    client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(30)))
    for _ in range(30):
        client.receive()
    assert node.on_loop(lambda: sum(node.node.metrics.flushes.counts)) - before <= 4


@pytest.fixture
def log_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each write to a log was."""
    sizes, write_at = [], OperatingSystemFile.write_at

    def write(file: OperatingSystemFile, position: int, data: bytes) -> None:
        if file.path.endswith("orders-0/00000000000000000000.log"):
            sizes.append(len(data))
        write_at(file, position, data)

    monkeypatch.setattr(OperatingSystemFile, "write_at", write)
    return sizes


@pytest.mark.parametrize("acks", [1, -1])
def test_produces_that_come_together_are_one_write(
    node: RunningNode, client: RawClient, log_writes: list[int], acks: int
) -> None:
    for _ in range(2):  # from then on they are known, and so is what the segment takes
        client.produce(b"before", acks=acks)
    log_writes.clear()
    client.socket.sendall(b"".join(client.frame(a_produce(b"%d" % number, acks=acks), 12) for number in range(10)))
    assert [only_partition(client.receive()).base_offset for _ in range(10)] == list(range(2, 12))
    assert len(log_writes) == 1
    node.until(lambda: is_flushed(node))
    assert client.values() == [b"before"] * 2 + [b"%d" % number for number in range(10)]
    assert node.on_loop(lambda: node.node.broker.counters.topic("orders").records_in) == 12
    assert node.on_loop(lambda: node.node.broker.counters.topic("orders").bytes_in) >= sum(log_writes)


@pytest.mark.parametrize("acks", [1, -1])
def test_of_produces_that_come_together_each_has_the_answer_that_it_would_have_alone(
    node: RunningNode, client: RawClient, acks: int
) -> None:
    def numbered(sequence: int, value: bytes = b"x") -> Any:
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return produce_request(a_batch(value, now_ms=NOW_AND_THEN_MS, **fields), acks=acks)

    damaged = a_batch(b"damaged", now_ms=NOW_AND_THEN_MS)
    damaged[-1] ^= 1
    client.ask(a_produce(b"before", acks=acks), 12)
    client.ask(a_produce(b"before", acks=acks), 12)
    requests = [
        numbered(0),
        numbered(1),
        numbered(0),  # once more
        numbered(5),  # too soon
        a_produce(b"x", acks=acks),
        produce_request(damaged, acks=acks),
        numbered(2),
        numbered(3),
        a_produce(b"x", topic="nowhere", acks=acks),
        numbered(4),
    ]
    client.socket.sendall(b"".join(client.frame(request, 12) for request in requests))
    answers = [only_partition(client.receive()) for _ in requests]  # each checks its correlation id
    assert [answer.base_offset for answer in answers] == [2, 3, 2, -1, 4, -1, 5, 6, -1, 7]
    assert [answer.error_code for answer in answers if answer.error_code] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


NO_LENGTH = bytes(8)
NO_NUMBER = b"\xff" * 6  # where the length of the batch would stand


@pytest.mark.parametrize("behind", [NO_LENGTH, NO_NUMBER])
def test_what_came_with_bytes_that_are_no_request_counts(node: RunningNode, client: RawClient, behind: bytes) -> None:
    client.produce(b"before", acks=1)
    frames = [client.frame(a_produce(b"%d" % number, acks=1), 12) for number in range(3)]
    if behind is NO_NUMBER:
        batch = a_batch(b"x", now_ms=NOW_AND_THEN_MS)
        whole = client.frame(produce_request(batch, acks=1), 12)
        behind = whole[: whole.index(batch) - 1] + NO_NUMBER
        behind = struct.pack(">i", len(behind) - 4) + behind[4:]
    client.socket.sendall(b"".join(frames) + behind)
    while client.socket.recv(1000):
        pass
    node.until(lambda: is_flushed(node))
    with RawClient(node.address) as reader:
        assert reader.values() == [b"before", b"0", b"1", b"2"]


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until the event is set, what has to be synced waits."""
    go_on, sync = threading.Event(), OperatingSystemFile.sync
    go_on.set()

    def wait_and_sync(file: OperatingSystemFile) -> None:
        go_on.wait(10)
        sync(file)

    monkeypatch.setattr(OperatingSystemFile, "sync", wait_and_sync)
    yield go_on
    go_on.set()


def under_way(node: RunningNode) -> int:
    return sum(pending.requests for connection in node.node.connections for pending in connection._pending)


def test_requests_that_come_while_a_flush_runs_are_answered_in_their_order(
    node: RunningNode, client: RawClient, held_disk: threading.Event
) -> None:
    """Each looks like one before it, so that it goes the short way, where that leads to no answer out of turn."""
    requests = [(a_produce(b"x"), 12), (a_produce(b"x", acks=1), 12), (park(), 12), (a_produce(b"x"), 12)]
    for request, version in requests:
        client.ask(request, version)
    held_disk.clear()
    for number, (request, version) in enumerate(requests, 1):
        client.send(request, version)
        node.until(lambda number=number: under_way(node) == number)  # type: ignore[misc]
    assert client.has_nothing()
    held_disk.set()
    assert [only_partition(client.receive()).base_offset for _ in range(2)] == [3, 4]  # each checks its correlation id
    assert len(values_of(only_partition(client.receive()))) == 3, "it has read what was on disk by then"
    assert only_partition(client.receive()).base_offset == 5


def test_only_so_many_produces_are_under_way_although_they_come_one_by_one(
    node: RunningNode, client: RawClient, held_disk: threading.Event
) -> None:
    client.ask(a_produce(b"x"), 12)
    held_disk.clear()
    for number in range(1, PIPELINED_MAX + 20):
        client.send(a_produce(b"x"), 12)
        node.until(lambda number=number: under_way(node) == min(number, PIPELINED_MAX))  # type: ignore[misc]
    held_disk.set()
    answers = [only_partition(client.receive()) for _ in range(1, PIPELINED_MAX + 20)]
    assert [answer.base_offset for answer in answers] == list(range(1, PIPELINED_MAX + 20))


def test_only_so_many_produces_are_under_way_although_they_come_together(
    node: RunningNode, client: RawClient, held_disk: threading.Event
) -> None:
    client.ask(a_produce(b"x"), 12)
    held_disk.clear()
    count, answered = 3 * PIPELINED_MAX, node.on_loop(lambda: node.node.metrics.requests)
    client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(count)))
    node.until(lambda: under_way(node) == PIPELINED_MAX)
    assert client.has_nothing()
    assert under_way(node) == PIPELINED_MAX
    held_disk.set()
    answers = [only_partition(client.receive()) for _ in range(count)]
    assert [answer.base_offset for answer in answers] == list(range(1, count + 1))
    assert node.on_loop(lambda: node.node.metrics.requests) == answered + count


def test_a_request_behind_a_parked_fetch_completes_it(node: RunningNode, client: RawClient) -> None:
    client.send(park(), 12)
    node.until(lambda: watchers(node))
    began = time.monotonic()
    client.send(ApiVersionsRequest(), 3)
    assert only_partition(client.receive()).error_code == 0
    assert client.receive().error_code == 0
    assert time.monotonic() - began < 20
    assert node.on_loop(lambda: watchers(node)) == 0


def test_a_fetch_is_hurried_once(node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking again for each of a hundred requests behind it could take the loop for seconds."""
    stuck = Stuck()
    monkeypatch.setitem(APIS.made, ApiKey.METADATA, APIS[ApiKey.METADATA]._replace(handle=lambda *_: stuck))
    client.send(MetadataRequest(topics=None), 12)
    client.socket.sendall(b"".join(client.frame(ApiVersionsRequest(), 3) for _ in range(50)))
    node.until(lambda: len(next(iter(node.node.connections))._pending) == 51)
    assert stuck.hurried == 1


class Stuck(DelayedResponse[Any]):
    __slots__ = ("abandoned", "expired", "hurried")

    def __init__(self, wait_ms: int | None = None) -> None:
        super().__init__(wait_ms)
        self.hurried = self.expired = self.abandoned = 0

    def hurry(self) -> None:
        self.hurried += 1

    def expire(self) -> None:
        self.expired += 1
        raise ValueError("nobody foresaw this")

    def abandon(self) -> None:
        self.abandoned += 1


def test_a_parked_fetch_is_woken_by_an_append(node: RunningNode, client: RawClient) -> None:
    client.send(park(), 12)
    node.until(lambda: watchers(node))
    with RawClient(node.address) as producer:
        producer.produce(b"news", acks=1)
    assert values_of(only_partition(client.receive())) == [b"news"]


def test_a_parked_fetch_is_answered_when_its_time_is_up(node: RunningNode, client: RawClient) -> None:
    began = time.monotonic()
    answer = only_partition(client.ask(park(max_wait_ms=200), 12))
    assert time.monotonic() - began > 0.15
    assert values_of(answer) == []


def test_a_session_is_read_the_short_way(node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        client.produce(b"%d" % number)
    decoded: list[int] = []
    real = APIS[ApiKey.FETCH]

    def handle(request: Any, *more: Any) -> Any:
        decoded.append(request.session_epoch)
        return real.handle(request, *more)

    monkeypatch.setitem(APIS.made, ApiKey.FETCH, real._replace(handle=handle))
    session = client.ask(fetch_request(from_offset(0), session_epoch=0), 12).session_id
    for epoch in range(1, 6):
        answer = client.ask(fetch_request(from_offset(epoch), session_id=session, session_epoch=epoch), 12)
        assert (answer.session_id, values_of(only_partition(answer))[0]) == (session, b"%d" % epoch)
    assert decoded == [0, 1]
    again = client.ask(fetch_request(from_offset(0), session_id=session, session_epoch=5), 12)
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


# Limits


def test_only_so_many_requests_are_under_way(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[DelayedResponse[Any]] = []

    def handle(*_: Any) -> DelayedResponse[Any]:
        waiting.append(DelayedResponse())
        return waiting[-1]

    real = APIS[ApiKey.API_VERSIONS]
    answer = real.handle(ApiVersionsRequest(), Call(3, "client", Endpoint("127.0.0.1", 9092), 0), node.node.broker)
    monkeypatch.setitem(APIS.made, ApiKey.API_VERSIONS, real._replace(handle=handle))
    client.socket.sendall(b"".join(client.frame(ApiVersionsRequest(), 3) for _ in range(250)))
    node.until(lambda: len(waiting) == PIPELINED_MAX)
    time.sleep(0.05)
    assert len(waiting) == PIPELINED_MAX
    node.on_loop(lambda: [later.resolve(answer) for later in waiting[1:]])
    time.sleep(0.05)
    assert len(waiting) == PIPELINED_MAX, "the first is not answered"
    node.on_loop(lambda: waiting[0].resolve(answer))
    node.until(lambda: len(waiting) == 2 * PIPELINED_MAX)
    for _ in range(2):
        node.on_loop(lambda: [later.resolve(answer) for later in list(waiting)])
        node.until(lambda: len(waiting) == 250)
    for _ in range(250):
        client.receive()


def test_thousands_of_requests_at_once(node: RunningNode, client: RawClient) -> None:
    frames = b"".join(client.frame(ApiVersionsRequest(), 0) for _ in range(5000))
    sender = threading.Thread(target=client.socket.sendall, args=(frames,))
    sender.start()
    for _ in range(5000):
        client.receive()
    sender.join()


def test_others_have_their_turn_between_costly_requests(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = APIS[ApiKey.API_VERSIONS]
    turns: list[int] = []

    def handle(*arguments: Any) -> Any:
        time.sleep(2 * TURN_S)
        turns[-1] += 1
        return real.handle(*arguments)

    start = connection_module.Connection._start_requests

    def counted(self: Any) -> bool:
        turns.append(0)
        return start(self)

    monkeypatch.setattr(connection_module.Connection, "_start_requests", counted)
    monkeypatch.setitem(APIS.made, ApiKey.API_VERSIONS, real._replace(handle=handle))
    client.socket.sendall(b"".join(client.frame(ApiVersionsRequest(), 3) for _ in range(10)))
    for _ in range(10):
        client.receive()
    assert max(turns) == 1


def test_a_client_that_does_not_read_is_not_read_from(node: RunningNode) -> None:
    with RawClient(node.address) as producer:
        for _ in range(8):
            producer.produce(b"x" * 1_000_000)
    with RawClient(node.address, receive_buffer=4096) as client:
        client.send(park(), 12)
        client.socket.sendall(b"".join(client.frame(ApiVersionsRequest(), 3) for _ in range(20)))
        connection = node.on_loop(lambda: next(iter(node.node.connections)))
        node.until(lambda: connection.outbox._is_waiting)
        client.send(ApiVersionsRequest(), 3)
        node.until(lambda: not connection._is_reading)
        assert node.on_loop(lambda: len(connection._pending)) <= 20
        assert len(values_of(only_partition(client.receive()))) == 8
        for _ in range(21):
            client.receive()
        node.until(lambda: connection._is_reading)


@pytest.mark.parametrize("loop", LOOPS)
def test_and_is_closed_in_time(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, {"tailrace.write.timeout.ms": "200"}, loop=LOOPS[loop]) as node:
        node.create_topic()
        with RawClient(node.address) as producer:
            for _ in range(8):
                producer.produce(b"x" * 1_000_000)
        node.until(lambda: not node.node.connections)
        before = len(os.listdir("/proc/self/fd"))
        with RawClient(node.address, receive_buffer=4096) as client:
            client.send(park(), 12)
            node.until(lambda: node.node.connections)
            node.until(lambda: not node.node.connections)
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # background work may have a file open


def test_more_data_than_a_socket_takes(node: RunningNode, client: RawClient) -> None:
    values = [bytes([n]) * 1_000_000 for n in range(20)]
    for value in values:
        client.produce(value)
    assert client.values() == values


def test_answers_that_are_large_one_after_the_other(node: RunningNode, client: RawClient) -> None:
    for n in range(10):
        client.produce(bytes([n]) * 1_000_000)
    for _ in range(5):
        client.send(park(), 12)
    for _ in range(5):
        assert len(values_of(only_partition(client.receive()))) == 10


@pytest.mark.parametrize("loop", LOOPS)
def test_memory_for_requests_is_bounded(tmp_path: Path, loop: str) -> None:
    configs = {"tailrace.inflight.bytes": str(1 << 20), "message.max.bytes": str(8 << 20)}
    with RunningNode(tmp_path, configs, loop=LOOPS[loop]) as node:
        node.create_topic()
        clients = [RawClient(node.address) for _ in range(10)]
        frames = [one.frame(a_produce(b"x" * 3_000_000), 12) for one in clients]
        senders = [
            threading.Thread(target=one.socket.sendall, args=(frame[:-1],))
            for one, frame in zip(clients, frames, strict=True)
        ]
        for sender in senders:
            sender.start()
        node.until(lambda: len(node.node.budget._waiting) == 9)
        assert node.on_loop(lambda: node.node.budget.total) < (1 << 20) + 3_001_000 + (300 << 10)  # one goes beyond
        for one, frame, sender in zip(clients, frames, senders, strict=True):
            threading.Thread(target=finish, args=(sender, one, frame)).start()
        for one in clients:
            assert only_partition(one.receive()).error_code == 0
            one.close()
        node.until(lambda: node.node.budget.total == 0)
        assert not node.node.budget._waiting


def finish(sender: threading.Thread, client: RawClient, frame: bytes) -> None:
    sender.join()
    client.socket.sendall(frame[-1:])


# What is refused


def test_too_new_an_api_versions_is_answered_in_the_oldest(node: RunningNode, client: RawClient) -> None:
    body = struct.pack(">hhih", 18, 99, 7, 3) + b"new" + b"\xff\xff whatever"
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    correlation_id, answer = decode_response(ApiVersionsResponse, 0, client.receive_frame())
    assert correlation_id == 7
    assert answer.error_code == 35
    assert ApiKey.API_VERSIONS in {one.api_key for one in answer.api_keys}
    assert client.ask(ApiVersionsRequest(), 3).error_code == 0


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, 0), (3, 99), (3, -1), (0, 2), (7, 0)])
def test_other_keys_and_versions_end_the_connection(node: RunningNode, key: int, version: int) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as other:
        body = struct.pack(">hhih", key, version, 1, -1) + bytes(20)
        client.socket.sendall(struct.pack(">i", len(body)) + body)
        assert client.is_closed()
        assert other.ask(ApiVersionsRequest(), 3).error_code == 0


MALFORMED = {
    "a negative length": struct.pack(">ih", -1, 3),
    "a huge length": struct.pack(">ih", (1 << 31) - 1, 3),
    "too long for its key": struct.pack(">ih", 100_000_000, 3),
    "no room for a header": struct.pack(">ihhi", 8, 3, 12, 1),
    "a client id of more than there is": struct.pack(">ihhih", 10, 3, 12, 1, 9999),
    "a client id that is no text": struct.pack(">ihhih", 12, 3, 12, 1, 2) + b"\xff\xfe",
    "a body that ends early": struct.pack(">ihhih", 11, 3, 12, 1, -1) + b"\0",
    "more elements than bytes": struct.pack(">ihhihi", 14, 3, 1, 1, -1, (1 << 31) - 1),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(200),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_ends_its_connection_alone(node: RunningNode, name: str) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as other:
        client.socket.sendall(MALFORMED[name])
        assert client.is_closed()
        assert other.ask(ApiVersionsRequest(), 3).error_code == 0
    node.until(lambda: not node.node.connections)


def test_an_answer_that_cannot_be_said_ends_its_connection_alone(node: RunningNode) -> None:
    """What is wrong with it is longer than a string of that version may be."""
    topic = CreatableTopic(name="x" * 32_767, num_partitions=1, replication_factor=1)
    with RawClient(node.address) as client, RawClient(node.address) as parked:
        parked.send(park(), 12)
        node.until(lambda: watchers(node))
        client.send(CreateTopicsRequest(topics=[topic, topic]), 2)
        client.send(ApiVersionsRequest(), 3)
        try:
            client.receive()
        except ConnectionError:
            pass
        else:
            client.receive()
        parked.send(ApiVersionsRequest(), 3)
        parked.receive()
        parked.receive()
    node.until(lambda: not node.node.connections)


def test_a_handler_that_fails_ends_its_connection_alone(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = APIS[ApiKey.METADATA]._replace(handle=lambda *_: 1 // 0)
    monkeypatch.setitem(APIS.made, ApiKey.METADATA, broken)
    with RawClient(node.address) as client, RawClient(node.address) as other:
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_closed()
        assert other.ask(ApiVersionsRequest(), 3).error_code == 0
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_fails_when_its_time_is_up_ends_its_connection_alone(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(wait_ms=50)
    monkeypatch.setitem(APIS.made, ApiKey.METADATA, APIS[ApiKey.METADATA]._replace(handle=lambda *_: stuck))
    client.send(MetadataRequest(topics=None), 12)
    assert client.is_closed()
    assert (stuck.expired, stuck.abandoned) == (1, 1)


# acks=0


def test_acks_0_is_not_answered(node: RunningNode, client: RawClient) -> None:
    for n in range(5):
        client.send_without_answer(a_produce(b"%d" % n, acks=0), 12)
    assert client.ask(ApiVersionsRequest(), 3).error_code == 0
    assert client.produce(b"5").base_offset == 5
    assert client.values() == [b"%d" % n for n in range(6)]


def test_acks_0_that_fails_ends_the_connection(node: RunningNode, client: RawClient) -> None:
    client.send_without_answer(produce_request(b"no batch", acks=0), 12)
    assert client.is_closed()


def test_answers_by_id_are_not_taken_from_the_shared_buffer(tmp_path: Path) -> None:
    """They leave when the buffer that their requests came in holds somebody else's."""
    with RunningNode(tmp_path) as node:
        ids = [node.create_topic(f"topic-{n}") for n in range(5)]
        with RawClient(node.address) as client:
            for topic_id in ids:
                batch = a_batch(b"x", now_ms=NOW_AND_THEN_MS)
                client.send(produce_request(batch, topic_id), 13)
            for topic_id in ids:
                (topic,) = client.receive().responses
                assert topic.topic_id == topic_id
                assert topic.partition_responses[0].error_code == 0


# Requests like those before them


def test_a_repetition_that_is_on_disk_already_is_answered_at_once(node: RunningNode, client: RawClient) -> None:
    offsets = []
    for sequence in (0, 1, 1, 0):
        batch = a_batch(b"x", now_ms=NOW_AND_THEN_MS, producer_id=7, producer_epoch=0, base_sequence=sequence)
        offsets.append(only_partition(client.ask(produce_request(batch), 12)).base_offset)
    assert offsets == [0, 1, 1, 0]


def test_who_waits_for_a_flush_is_answered_although_another_part_of_it_fails(
    node: RunningNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.ask(a_produce(b"x"), 12)
    sizes = node.node.broker.sizes
    measure = sizes.measure

    def fail_once(log: Any) -> None:
        monkeypatch.setattr(sizes, "measure", measure)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(sizes, "measure", fail_once)
    assert only_partition(client.ask(a_produce(b"y"), 12)).base_offset == 1
    assert only_partition(client.ask(a_produce(b"z"), 12)).base_offset == 2
    (met,) = node.errors
    assert str(met["exception"]) == "a fault of ours"
    node.errors.clear()


# Clients that go away


@pytest.mark.parametrize("goes", ["close", "reset"])
def test_one_that_goes_while_parked_leaves_nothing(node: RunningNode, goes: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    clients = [RawClient(node.address) for _ in range(20)]
    for one in clients:
        one.send(park(), 12)
    node.until(lambda: watchers(node) == 20)
    timers = node.on_loop(lambda: [one._deadlines._timer for one in node.node.connections])
    for one in clients:
        getattr(one, goes)()
    node.until(lambda: not node.node.connections)
    assert node.on_loop(lambda: watchers(node)) == 0
    assert all(timer.cancelled() for timer in timers)  # type: ignore[union-attr]
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # background work may have a file open


@pytest.mark.parametrize("sent", [3, 100, 300_000])
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not say what became of a connection")
def test_one_that_was_reset_before_its_bytes_were_read_is_closed_soon(node: RunningNode, sent: int) -> None:
    """uvloop reports the reset together with the bytes, and never again."""
    for _ in range(3):
        client = RawClient(node.address)
        client.ask(ApiVersionsRequest(), 3)
        node.loop.call_soon_threadsafe(time.sleep, 0.2)
        client.socket.sendall(client.frame(a_produce(bytes(400_000)), 12)[:sent])
        client.reset()
    node.until(lambda: not node.node.connections, 5)
    assert node.on_loop(lambda: node.node.budget.total) == 0


def test_one_that_goes_while_its_produce_is_flushed(node: RunningNode) -> None:
    for _ in range(20):
        with RawClient(node.address) as client:
            client.send(a_produce(b"x"), 12)
    node.until(lambda: not node.node.connections)
    with RawClient(node.address) as client:
        assert client.produce(b"last").error_code == 0


def test_one_that_goes_amid_a_large_answer_lets_go_of_the_file(node: RunningNode) -> None:
    with RawClient(node.address) as producer:
        for _ in range(8):
            producer.produce(b"x" * 1_000_000)
    log = node.node.broker.partition("orders", 0).log  # type: ignore[union-attr]
    assert log is not None
    pins = node.on_loop(lambda: log.segments[-1].log._pins)  # type: ignore[attr-defined, union-attr]
    clients = [RawClient(node.address, receive_buffer=4096) for _ in range(10)]
    for client in clients:
        for _ in range(5):
            client.send(park(), 12)
    node.until(lambda: all(one.outbox._is_waiting for one in node.node.connections))
    assert node.on_loop(lambda: log.segments[-1].log._pins) >= pins + 10  # type: ignore[attr-defined, union-attr]
    for client in clients:
        client.reset()
    node.until(lambda: not node.node.connections)
    assert node.on_loop(lambda: log.segments[-1].log._pins) == pins  # type: ignore[attr-defined, union-attr]


def test_descriptors_that_are_used_again_are_not_mixed_up(node: RunningNode) -> None:
    """A connection closed while it was blocked, and a new one that gets its number at once."""
    with RawClient(node.address) as producer:
        for _ in range(8):
            producer.produce(b"x" * 1_000_000)
    for _ in range(30):
        blocked = RawClient(node.address, receive_buffer=4096)
        blocked.send(park(), 12)
        node.until(lambda: any(one.outbox._is_waiting for one in node.node.connections))
        node.on_loop(lambda: [one.close() for one in list(node.node.connections)])
        with RawClient(node.address) as again:
            assert again.ask(ApiVersionsRequest(), 3).error_code == 0
            assert again.ask(park(max_wait_ms=0, max_bytes=1), 12).error_code == 0
        blocked.close()
