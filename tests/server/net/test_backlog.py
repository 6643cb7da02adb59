"""Producers that are slowed or refused for the sake of a slow group, as their connections see it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backlogs import configured
from brokers import a_batch, only_partition, produce_request
from nodes import RunningNode
from raw_client import RawClient

from tailrace.broker.broker import Broker
from tailrace.broker.core.partition import Partition
from tailrace.broker.metadata.records import ConfigChanged
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersionsRequest

LIMIT = 10_000
LONG_MS = 40_000  # a quarter is more than the longest delay


@contextmanager
def node_with(path: Path, policy: str, limit: int = LIMIT) -> Iterator[RunningNode]:
    with RunningNode(path) as node:
        node.create_topic(**configured(policy, bytes=limit))
        yield node


def a_request(acks: int = 1, size: int = 32) -> Any:
    batch = a_batch(bytes(size), now_ms=int(time.time() * 1000))
    return produce_request(batch, acks=acks, timeout_ms=LONG_MS)


def fill(client: RawClient, share: float) -> None:
    assert only_partition(client.ask(a_request(size=int(share * LIMIT) - 70), 12)).error_code == 0


def end(node: RunningNode) -> int:
    partition = node.node.broker.partition("orders", 0)
    return partition.end_offset if partition is not None else 0


def configure(node: RunningNode, **configs: str) -> None:
    def write() -> None:
        changes = [
            ConfigChanged(resource_type=2, resource_name="orders", key=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        node.node.broker.metadata_log.write(changes, int(time.time() * 1000))
        node.node.pump()

    node.on_loop(write)
    node.until(lambda: node.node.broker.metadata_log.is_settled)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("has_quotas", [False, True])
def test_a_delayed_response_leaves_its_connection_readable(
    tmp_path: Path, acks: int, has_quotas: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, appended, real = 20, [], Broker.appended

    def note(broker: Broker, partition: Partition, log: Log, now_ms: int) -> None:
        appended.append(time.monotonic())
        real(broker, partition, log, now_ms)

    with node_with(tmp_path, "backpressure", 10 * LIMIT) as node, RawClient(node.address) as client:
        if has_quotas:
            node.on_loop(lambda: node.node.broker.metadata.quotas.set((("client-id", "x"),), "producer_byte_rate", 1.0))
        fill(client, 9.5)
        monkeypatch.setattr(Broker, "appended", note)
        began = time.monotonic()
        for _ in range(requests):
            client.send(a_request(acks), 12)
        client.send(ApiVersionsRequest(), 3)
        delays = [client.receive().throttle_time_ms for _ in range(requests)]
        assert client.receive().throttle_time_ms == 0
        took = time.monotonic() - began
        assert node.on_loop(lambda: end(node)) == requests + 1
        assert appended[-1] - appended[0] < delays[0] / 1000, "all are appended before the first is answered"
        assert delays == sorted(delays)
        assert 450 < delays[0] < 600
        assert max(delays) / 1000 <= took < sum(delays) / 1000, "they do not add up"


def test_producers_to_other_topics_are_answered_at_once(tmp_path: Path) -> None:
    with (
        node_with(tmp_path, "backpressure") as node,
        RawClient(node.address) as client,
        RawClient(node.address) as other,
    ):
        node.create_topic("free")
        fill(client, 0.99)
        client.send(a_request(), 12)
        assert other.produce(b"x", topic="free").error_code == 0
        assert client.has_nothing()
        assert client.receive().throttle_time_ms > 800
        other.close()


def test_what_a_producer_repeats_is_refused_and_taken_as_the_policy_changes(tmp_path: Path) -> None:
    """Requests like an earlier one take the fast path, where no policy applies."""
    with RunningNode(tmp_path) as node, RawClient(node.address) as client:
        node.create_topic()

        def code() -> int:
            return int(only_partition(client.ask(a_request(), 12)).error_code)

        assert [code() for _ in range(110)] == [0] * 110
        configure(node, **configured("reject", bytes=LIMIT))
        assert [code() for _ in range(3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        configure(node, **configured("reject", bytes=10 * LIMIT))
        time.sleep(1.1)
        assert [code() for _ in range(3)] == [0] * 3
        configure(node, **configured("reject", bytes=LIMIT))
        assert code() == ErrorCode.NOT_ENOUGH_REPLICAS
        configure(node, tailrace_backlog_policy="drop", tailrace_backlog_groups="")
        assert [code() for _ in range(3)] == [0] * 3


def test_without_acks_the_connection_is_not_read_for_a_while(tmp_path: Path) -> None:
    with node_with(tmp_path, "reject") as node, RawClient(node.address) as client, RawClient(node.address) as other:
        fill(other, 1.05)
        began = time.monotonic()
        for _ in range(3):
            client.send_without_answer(a_request(acks=0), 12)
        client.send(ApiVersionsRequest(), 3)
        node.until(lambda: end(node) == 2)
        assert other.ask(ApiVersionsRequest(), 3).error_code == 0, "others are read"
        assert client.has_nothing()
        client.receive()
        assert time.monotonic() - began >= 3
        assert node.on_loop(lambda: end(node)) == 4, "nothing is lost"


def test_a_stop_waits_for_delayed_responses(tmp_path: Path) -> None:
    with node_with(tmp_path, "backpressure") as node, RawClient(node.address) as client:
        fill(client, 0.95)
        client.send(a_request(), 12)
        node.until(lambda: end(node) == 2)
        stopping = threading.Thread(target=node.stop)
        stopping.start()
        assert only_partition(client.receive()).error_code == 0
        stopping.join()


def test_metrics_show_states_delays_and_refusals(tmp_path: Path) -> None:
    with node_with(tmp_path, "backpressure") as node, RawClient(node.address) as client:
        labels = 'topic="orders",group="billing",policy="backpressure"'
        for share, state in ((0.5, 0), (0.35, 1)):
            fill(client, share)
            assert f"tailrace_backlog_state{{{labels}}} {state}\n" in node.on_loop(node.node.metrics.exposition)
        fill(client, 0.2)
        assert only_partition(client.ask(a_request(), 12)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        page = node.on_loop(node.node.metrics.exposition)
        assert f"tailrace_backlog_state{{{labels}}} 2\n" in page
        assert 'tailrace_backlog_delayed_acks_total{topic="orders"} 1\n' in page
        assert 'tailrace_backlog_refused_total{topic="orders"} 1\n' in page
