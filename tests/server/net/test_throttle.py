"""Clients that do more than their quotas allow: answered at once, told how long, and not read meanwhile.

The window is as short as can be, so that the first byte is one too many: a request of `size` bytes mutes its client for
`size / rate` seconds.
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import fetch_request, from_offset, only_partition, values_of
from nodes import LOOPS, RunningNode
from raw_client import RawClient, a_produce

from tailrace.broker.quotas.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    QuotaMeter,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.server.net.frames import SCRATCH_BYTES

CLIENT: Entity = (("client-id", "raw"),)
ADDRESS: Entity = (("ip", "127.0.0.1"),)
NO_WINDOW = {"quota.window.num": "1"}
FOR_LONG = 1.0  # bytes a second: whoever says anything is throttled for a long time


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, NO_WINDOW) as node:
        node.create_topic()
        yield node


def allow(node: RunningNode, key: str, rate: float | None, entity: Entity = CLIENT) -> None:
    node.on_loop(lambda: node.node.broker.metadata.quotas.set(entity, key, rate))


def records(node: RunningNode) -> int:
    partition = node.node.broker.partition("orders", 0)
    assert partition is not None
    return partition.end_offset


def throttled(node: RunningNode) -> int:
    return sum(connection.throttle.is_on for connection in node.node.connections)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_producer_over_its_quota_is_answered_and_then_not_heard(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, NO_WINDOW, loop=LOOPS[loop]) as node, RawClient(node.address) as client:
        node.create_topic()
        request = client.frame(a_produce(b"x" * 1000, acks=1), 12)
        allow(node, PRODUCER_BYTE_RATE, 2 * len(request))
        client.socket.sendall(request)
        answer = client.receive()
        answered = time.monotonic()
        assert only_partition(answer).error_code == 0
        assert 0 < answer.throttle_time_ms <= 500
        with RawClient(node.address) as other:
            other.ask(ApiVersionsRequest(), 3)
            assert node.on_loop(lambda: throttled(node)) == 1, "another connection is heard meanwhile"
        assert client.ask(ApiVersionsRequest(), 3).throttle_time_ms == 0
        assert time.monotonic() - answered >= 0.95 * answer.throttle_time_ms / 1000
        assert node.on_loop(lambda: throttled(node)) == 0


def test_what_was_sent_ahead_waits_unstarted(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(5)))
        assert client.receive().throttle_time_ms > 10_000
        assert client.has_nothing()
        assert node.on_loop(lambda: records(node)) == 1


def test_pipelined_requests_go_at_the_rate(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        frames = [client.frame(a_produce(b"x" * 1000, acks=1), 12) for _ in range(6)]
        allow(node, PRODUCER_BYTE_RATE, 10 * len(frames[0]))
        began = time.monotonic()
        client.socket.sendall(b"".join(frames))
        answers = [client.receive() for _ in frames]
        assert time.monotonic() - began >= 0.95 * 5 / 10, "the last one is answered when the fifth is waited off"
        assert all(0 < answer.throttle_time_ms <= 100 for answer in answers)


def test_a_consumer_over_its_quota_gets_its_records_and_then_waits(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        client.produce(b"x" * 1000)
        allow(node, CONSUMER_BYTE_RATE, 2000)
        fetch = fetch_request(from_offset(0), max_wait_ms=0)
        answer = client.ask(fetch, 12)
        answered = time.monotonic()
        assert values_of(only_partition(answer)) == [b"x" * 1000]
        assert 500 <= answer.throttle_time_ms <= 600, "the batch is a little larger than its record"
        client.ask(ApiVersionsRequest(), 3)
        assert time.monotonic() - answered >= 0.95 * answer.throttle_time_ms / 1000


def test_a_fetch_that_waited_is_charged_when_it_is_answered(node: RunningNode) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as producer:
        allow(node, CONSUMER_BYTE_RATE, FOR_LONG)
        client.send(fetch_request(from_offset(0), max_wait_ms=30_000), 12)
        assert client.has_nothing()
        producer.produce(b"x" * 1000)
        assert client.receive().throttle_time_ms > 100_000
        assert node.on_loop(lambda: throttled(node)) == 1


def test_one_answer_has_no_more_than_may_be_had_at_once(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"quota.window.num": "2"}) as node, RawClient(node.address) as client:
        node.create_topic()
        for _ in range(10):
            client.produce(b"x" * 1000)
        fetch = fetch_request(from_offset(0), max_wait_ms=0)
        assert len(values_of(only_partition(client.ask(fetch, 12)))) == 10
        allow(node, CONSUMER_BYTE_RATE, 3500)
        assert len(values_of(only_partition(client.ask(fetch, 12)))) == 3


def test_who_wants_no_answer_is_throttled_too(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        for _ in range(2):
            client.send_without_answer(a_produce(b"x", acks=0), 12)
        node.until(lambda: throttled(node) == 1)
        assert client.has_nothing()
        assert node.on_loop(lambda: records(node)) == 1


def test_the_time_of_the_loop_is_charged_for_every_request(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, REQUEST_PERCENTAGE, 0.001)
        for _ in range(2):
            assert 0 < client.ask(ApiVersionsRequest(), 3).throttle_time_ms <= 1000, "or members of groups are put out"
        assert node.on_loop(lambda: throttled(node)) == 1


def test_who_is_told_to_wait_by_an_answer_is_throttled(node: RunningNode) -> None:
    def create(name: str) -> Any:
        return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])

    with RawClient(node.address) as client:
        allow(node, CONTROLLER_MUTATION_RATE, 4)
        client.ask(create("first"), 7)
        refused = client.ask(create("second"), 7)
        answered = time.monotonic()
        assert [topic.error_code for topic in refused.topics] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert 0 < refused.throttle_time_ms <= 500
        assert client.ask(create("second"), 7).topics[0].error_code == 0, "it may when it has waited"
        assert time.monotonic() - answered >= 0.95 * refused.throttle_time_ms / 1000


def test_other_clients_have_quotas_of_their_own(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG, (("client-id", "somebody"),))
        allow(node, PRODUCER_BYTE_RATE, 1e12, (("client-id", None),))
        allow(node, CONSUMER_BYTE_RATE, FOR_LONG, (("user", "somebody"),))
        for _ in range(3):
            assert client.ask(a_produce(b"x"), 12).throttle_time_ms == 0
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG, (("user", "ANONYMOUS"),))
        assert client.ask(a_produce(b"x"), 12).throttle_time_ms > 0


def test_where_nobody_has_a_quota_nothing_is_counted(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(*_: Any) -> int:
        raise AssertionError("the hot path pays for it")

    for name in ("charge", "connect", "at_once"):
        monkeypatch.setattr(QuotaMeter, name, count)
    with RawClient(node.address) as client:
        client.produce(b"x")
        assert client.values() == [b"x"]


@pytest.mark.parametrize("rate", [None, 1e12], ids=["gone", "raised"])
def test_who_is_throttled_is_heard_again_when_the_quota_changes(node: RunningNode, rate: float | None) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(3)))
        assert client.receive().throttle_time_ms > 10_000
        allow(node, PRODUCER_BYTE_RATE, rate)
        assert [client.receive().throttle_time_ms for _ in range(2)] == [0, 0]


def test_who_is_in_debt_is_throttled_again(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(3)))
        first = client.receive().throttle_time_ms
        allow(node, PRODUCER_BYTE_RATE, 5, (("client-id", "somebody"),))
        assert client.receive().throttle_time_ms > first
        assert client.has_nothing()


# What a throttled connection costs, and when it ends


def test_a_throttled_client_is_not_buffered_for(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        assert client.ask(a_produce(b"x"), 12).throttle_time_ms > 10_000
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.sendall(bytes(64 << 20))
        (connection,) = node.on_loop(lambda: list(node.node.connections))
        assert node.on_loop(lambda: connection._frames.held_bytes) <= SCRATCH_BYTES
        assert node.on_loop(lambda: node.node.budget.total) <= SCRATCH_BYTES


def test_a_stop_does_not_wait_for_those_who_are_throttled(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        client.socket.sendall(b"".join(client.frame(a_produce(b"x"), 12) for _ in range(3)))
        assert client.receive().throttle_time_ms > 10_000
        node.stop()
        assert client.is_closed()


def test_a_throttled_connection_is_not_idle(tmp_path: Path) -> None:
    impatient = {**NO_WINDOW, "connections.max.idle.ms": "100", "tailrace.write.timeout.ms": "100"}
    with RunningNode(tmp_path, impatient) as node, RawClient(node.address) as client:
        node.create_topic()
        request = client.frame(a_produce(b"x" * 1000), 12)
        rest = client.frame(ApiVersionsRequest(), 3)
        allow(node, PRODUCER_BYTE_RATE, len(request))
        client.socket.sendall(request + rest[:7])
        assert client.receive().throttle_time_ms > 0
        client.socket.sendall(rest[7:])
        assert client.receive().error_code == 0
        assert client.is_closed(), "it is idle afterwards"


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="nobody says whether a connection is closed")
def test_a_throttled_connection_that_nobody_is_behind_any_more_is_closed(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {**NO_WINDOW, "tailrace.write.timeout.ms": "100"}) as node:
        node.create_topic()
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        clients = [RawClient(node.address) for _ in range(2)]
        for client in clients:
            assert client.ask(a_produce(b"x"), 12).throttle_time_ms > 10_000
            client.send(ApiVersionsRequest(), 3)
        clients[0].close()
        node.until(lambda: len(node.node.connections) == 1)
        assert node.on_loop(lambda: throttled(node)) == 1
        clients[1].close()


def test_how_often_clients_had_to_wait_is_told(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        allow(node, PRODUCER_BYTE_RATE, FOR_LONG)
        client.ask(a_produce(b"x"), 12)
        said = node.on_loop(node.node.metrics.exposition)
        assert "tailrace_connections_muted 1\n" in said
        assert 'tailrace_throttled_total{quota="producer_byte_rate"} 1\n' in said


# Connections


def test_connections_over_the_quota_of_their_address_are_held_and_closed(node: RunningNode) -> None:
    allow(node, CONNECTION_CREATION_RATE, 2, ADDRESS)
    first, second = RawClient(node.address), RawClient(node.address)
    first.ask(ApiVersionsRequest(), 3)
    began = time.monotonic()
    second.send(ApiVersionsRequest(), 3)
    assert second.is_closed()
    assert time.monotonic() - began >= 0.3, "not at once: it would come again at once"
    with RawClient(node.address) as third:
        third.ask(ApiVersionsRequest(), 3)
    first.ask(ApiVersionsRequest(), 3)
    first.close()
    second.close()
    said = node.on_loop(node.node.metrics.exposition)
    assert 'tailrace_throttled_total{quota="connection_creation_rate"} 1\n' in said


def test_a_stop_closes_those_that_are_held(node: RunningNode) -> None:
    allow(node, CONNECTION_CREATION_RATE, 1, ADDRESS)
    clients = [RawClient(node.address) for _ in range(4)]
    clients[0].ask(ApiVersionsRequest(), 3)
    node.stop()
    for client in clients:
        assert client.is_closed()
        client.close()
