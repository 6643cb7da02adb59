"""Nothing that a request leaves behind is part of a reference cycle: the collector runs rarely (`server/run`).

Each scenario sends real requests to a real node while the collector is off. A collection that keeps what it finds must
then find nothing of the broker's: no connection, no buffer, no exception with the frames that raised it.
"""

import gc
import socket
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from batches import batch_of
from brokers import a_batch, fetch_request, from_offset, only_partition, produce_request
from group_requests import subscription
from nodes import LOOPS, RunningNode
from raw_client import NOW_AND_THEN_MS, RawClient, a_produce

import tailrace
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import Topic
from tailrace.broker.quotas.client_quotas import PRODUCER_BYTE_RATE
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest
from tailrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.produce import ProduceRequest
from tailrace.records.compression import Codec, compress
from tailrace.server.handoff import handoff
from tailrace.server.net import outbox as sending
from tailrace.testing.faulty_files import FaultyFiles

PACKAGE = next(iter(tailrace.__path__))
LARGE = 1 << 20
BOMB = 17 << 20
BATCHES = 20
CONFIGS = {"group.initial.rebalance.delay.ms": "60000", "quota.window.num": "1"}

Scenario = Callable[[RunningNode], None]


def is_ours(one: object) -> bool:
    """Whether it belongs to the broker, or is memory that the broker may have lent."""
    if isinstance(one, types.FrameType):
        return one.f_code.co_filename.startswith(PACKAGE)
    if isinstance(one, types.TracebackType):
        return is_ours(one.tb_frame)
    if isinstance(one, Topic | Partition):
        return False  # of a deleted topic: they know each other, are small, and hold no buffer
    if isinstance(one, types.MethodType | types.FunctionType | types.GeneratorType):
        return str(getattr(one, "__module__", None)).startswith("tailrace.")
    return isinstance(one, memoryview | socket.socket) or type(one).__module__.startswith("tailrace.")


@contextmanager
def collector_off() -> Iterator[list[object]]:
    """Fills the list, at the end, with what only a collection would have freed."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [one for one in gc.garbage if is_ours(one)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def is_quiet(node: RunningNode) -> bool:
    inner = node.node
    workers = (inner.readers, inner.senders, inner.jobs, inner.flusher.threads)
    return not (inner.connections or inner.handoff.helper._handed_off or any(one.under_way for one in workers))


def left_by(scenario: Scenario, node: RunningNode) -> list[str]:
    with collector_off() as found:
        scenario(node)
        node.until(lambda: is_quiet(node), 20)
        for _ in range(3):
            node.on_loop(lambda: None)
    return [f"{type(one).__module__}.{type(one).__qualname__}: {one!r:.100}" for one in found]


def reading(offset: int, limit: int = 600_000) -> FetchRequest:
    return fetch_request(from_offset(offset, 0, limit), topic="history", max_wait_ms=0, max_bytes=limit)


def reading_all() -> FetchRequest:
    return reading(0, 64 << 20)


def to_be_recompressed(acks: int = -1) -> ProduceRequest:
    batch = a_batch(bytes(100_000), now_ms=NOW_AND_THEN_MS, codec=Codec.GZIP)
    return produce_request(batch, "packed", acks=acks)


# What clients do


def good_requests(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        client.ask(MetadataRequest(topics=None), 12)
        for acks in (-1, 1):
            for _ in range(3):
                assert client.produce(b"a", acks=acks).error_code == 0
                assert client.produce(bytes(LARGE // 2), acks=acks).error_code == 0
                assert only_partition(client.ask(to_be_recompressed(acks), 12)).error_code == 0
        client.send_without_answer(a_produce(b"a", acks=0), 12)
        for _ in range(40):
            client.send(a_produce(b"a"), 12)
        for _ in range(40):
            assert only_partition(client.receive()).error_code == 0
        for _ in range(3):
            assert client.values()


def late_answers(node: RunningNode) -> None:
    """Those that wait for a disk, or a thread."""
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(committed_offset=1)])],
    )
    with RawClient(node.address) as client:
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7)
        assert client.produce(b"a", b"b", topic="t").error_code == 0
        for timestamp in (-1, -2, -3, 5):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[wanted])]), 7)
        deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        client.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 2)
        client.ask(DescribeLogDirsRequest(topics=None), 4)
        client.ask(commit, 8)
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)


def refused_requests(node: RunningNode) -> None:
    damaged = bytearray(a_produce(b"damaged").topic_data[0].partition_data[0].records)
    damaged[-1] ^= 1
    bombs = [
        batch_of(bytes(compress(codec, bytes(BOMB))), attributes=codec)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ]
    broken = [batch_of(b"\x01\x02\x03" * 20, attributes=codec) for codec in (1, 2, 3, 4)]
    with RawClient(node.address) as client:
        for records in (*bombs, *broken, damaged):
            for topic in ("packed", "compacted"):
                if len(records) < 900_000:
                    assert only_partition(client.ask(produce_request(records, topic), 12)).error_code
        assert client.produce(b"no key", topic="compacted").error_code == ErrorCode.INVALID_RECORD
        assert client.produce(bytes(LARGE + 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert client.produce(b"a", topic="unknown").error_code
        assert only_partition(client.ask(produce_request(damaged), 12)).error_code == ErrorCode.CORRUPT_MESSAGE
        client.ask(fetch_request(from_offset(1 << 40), max_wait_ms=0), 12)


def what_is_no_request(node: RunningNode) -> None:
    for data in (
        b"\x7f\xff\xff\xff\0\0\0\x0c" + bytes(100),
        b"\0\0\0\x20\0\0\0\x0c" + b"\xff" * 28,
        b"\0\0\0\x20\0\x7b\0\x0c" + bytes(28),
        b"\0\0\0\x0c\0\0\0\x7f\0\0\0\0\xff\xff\0\0",
    ):
        with RawClient(node.address) as client:
            client.socket.sendall(data)
            assert client.is_closed()


def left_amid_a_request(node: RunningNode) -> None:
    for size in (3, 100, 10_000, 300_000, LARGE - 1000):
        for is_reset in (False, True):
            client = RawClient(node.address)
            if size > 10_000:
                client.produce(bytes(400_000))
            frame = client.frame(a_produce(bytes(LARGE)), 12)
            client.socket.sendall(frame[:size])
            node.until(lambda: any(one.is_amid_request for one in node.node.connections))
            if is_reset:
                client.reset()
            else:
                client.close()


def left_amid_a_response(node: RunningNode) -> None:
    request = reading_all()
    several = FetchRequest(
        max_wait_ms=0, max_bytes=64 << 20, topics=[request.topics[0], *fetch_request(from_offset(0)).topics]
    )
    for number in range(6):
        client = RawClient(node.address, receive_buffer=4096)
        client.send(several if number % 2 else request, 12)
        client.receive_bytes(100)
        if number % 3:
            client.send(request, 12)
        client.reset()


def left_while_waiting(node: RunningNode) -> None:
    waiting = fetch_request(from_offset(1), max_wait_ms=30_000, min_bytes=1 << 20)
    join = JoinGroupRequest(
        group_id="billing",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
    )
    for request, version in ((waiting, 12), (join, 3)):
        for _ in range(2):
            with RawClient(node.address) as client:
                client.send(request, version)
                client.send(ApiVersionsRequest(), 3)


def expired_waits(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        end = node.node.broker.partition("orders", 0).end_offset  # type: ignore[union-attr]
        client.ask(fetch_request(from_offset(end), max_wait_ms=50, min_bytes=1 << 20), 12)


def left_with_a_produce_under_way(node: RunningNode) -> None:
    for request in (a_produce(bytes(100_000)), to_be_recompressed()):
        with RawClient(node.address) as client:
            for _ in range(5):
                client.send(request, 12)


def left_while_throttled(node: RunningNode) -> None:
    def allow(rate: float | None) -> None:
        node.on_loop(lambda: node.node.broker.metadata.quotas.set((("client-id", "raw"),), PRODUCER_BYTE_RATE, rate))

    allow(1.0)
    for _ in range(2):
        with RawClient(node.address) as client:
            client.produce(bytes(1000))
            client.socket.sendall(client.frame(a_produce(bytes(1000)), 12)[:500])
    allow(None)


SCENARIOS = [
    good_requests,
    late_answers,
    refused_requests,
    what_is_no_request,
    left_amid_a_request,
    left_amid_a_response,
    left_while_waiting,
    expired_waits,
    left_with_a_produce_under_way,
    left_while_throttled,
]


@contextmanager
def a_node(path: Path, loop: str, configs: dict[str, str] | None = None, **options: Any) -> Iterator[RunningNode]:
    with RunningNode(path, {**CONFIGS, **(configs or {})}, loop=LOOPS[loop], **options) as node:
        node.create_topic()
        node.create_topic("history", segment_bytes=str(16 << 20))
        node.create_topic("packed", compression_type="uncompressed")
        node.create_topic("compacted", cleanup_policy="compact")
        with RawClient(node.address) as client:
            for _ in range(BATCHES):
                client.produce(bytes(LARGE // 2), topic="history")
            client.produce(b"a")
            client.ask(to_be_recompressed(), 12)
        node.until(lambda: is_quiet(node))
        yield node


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_clients_leave_nothing_for_the_collector(tmp_path: Path, scenario: Scenario, loop: str) -> None:
    with a_node(tmp_path, loop) as node:
        assert left_by(scenario, node) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_that_time_out_leave_nothing_for_the_collector(tmp_path: Path, loop: str) -> None:
    def are_too_slow(node: RunningNode) -> None:
        """One is idle, one silent amid a request, one takes nothing of its response, others wait for memory."""
        clients = [RawClient(node.address, receive_buffer=4096) for _ in range(6)]
        frame = clients[1].frame(a_produce(bytes(LARGE)), 12)
        clients[1].socket.sendall(frame[:50_000])
        clients[2].send(reading_all(), 12)
        for client in clients[3:]:
            with suppress(OSError):  # the broker closes it to make room
                client.socket.sendall(frame[: LARGE - 1000])
        node.until(lambda: not node.node.connections, 20)
        for client in clients:
            client.close()

    hasty = {"tailrace.write.timeout.ms": "400", "tailrace.inflight.bytes": str(1 << 20)}
    with a_node(tmp_path, loop, {**hasty, "connections.max.idle.ms": "1000"}) as node:
        assert left_by(are_too_slow, node) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reader_that_leaves_while_handed_off_leaves_nothing_for_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(sending.Outbox, "is_cold", property(lambda _: True, lambda *_: None))
    monkeypatch.setattr(handoff, "BACKOFF_S", 0.0)
    monkeypatch.setattr(handoff, "REFUSED_S", 0.0)

    def read_on_and_leave(node: RunningNode) -> None:
        for is_reset in (False, True):
            handed_off, offset = node.node.handoff.helper.handed_off, 0
            client = RawClient(node.address, receive_buffer=4096)
            while node.node.handoff.helper.handed_off == handed_off:
                answer = only_partition(client.ask(reading(offset), 12))
                offset = offset + 1 if answer.records else 0
            client.send(reading(0), 12)
            client.receive_bytes(100)
            if is_reset:
                client.reset()
            else:
                client.close()

    with a_node(tmp_path, loop) as node:
        node.until(lambda: node.node.handoff.helper.prepare())
        assert left_by(read_on_and_leave, node) == []


def test_a_handler_that_fails_leaves_nothing_for_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    def ask(node: RunningNode) -> None:
        monkeypatch.setattr(node.node.broker, "handle", fail)
        with RawClient(node.address) as client:
            client.send(a_produce(bytes(LARGE // 2)), 12)
            assert client.is_closed()

    with a_node(tmp_path, "uvloop") as node:
        assert left_by(ask, node) == []


def test_the_pages_leave_nothing_for_the_collector(tmp_path: Path) -> None:
    """On uvloop: asyncio's own transports are cycles."""

    def ask(node: RunningNode) -> None:
        assert node.pages.address is not None
        for asked in (b"GET /metrics HTTP/1.0\r\n\r\n", b"GET"):
            with RawClient(node.pages.address) as client:
                client.socket.sendall(asked)
                client.socket.shutdown(socket.SHUT_WR)
                assert client.is_closed()

    with a_node(tmp_path, "uvloop") as node:
        assert left_by(ask, node) == []


@pytest.mark.parametrize("kind", ["write_at", "sync"])
def test_a_disk_that_fails_leaves_nothing_for_the_collector(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles(OperatingSystemFiles())

    def produce_in_vain(node: RunningNode) -> None:
        files.fail(kind, EIO, name=".log", forever=True)
        with RawClient(node.address) as client:
            for _ in range(3):
                assert client.produce(bytes(LARGE // 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    with a_node(tmp_path, "uvloop", {"tailrace.journal.bytes": "0"}, files=files) as node:
        assert left_by(produce_in_vain, node) == []
        files.heal()


def test_the_broker_would_be_caught_making_a_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or none of these tests could fail."""
    monkeypatch.setattr(sending.Outbox, "close", lambda _: None)
    with a_node(tmp_path, "uvloop") as node:
        left = left_by(good_requests, node)
        assert any("Connection" in one for one in left)
