"""While batches are recompressed, those behind them wait, in order, and nobody else does."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import a_batch, only_partition, produce_request
from nodes import RunningNode
from raw_client import NOW_AND_THEN_MS, RawClient, a_produce

from tailrace.broker.produce import recompression as recompressing
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.records.compression import Codec
from tailrace.server import node as node_module


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, recompression takes its time."""
    gate = threading.Event()
    real = recompressing.recompress

    def slowly(*arguments: Any) -> bytearray:
        assert gate.wait(20)
        return real(*arguments)

    monkeypatch.setattr(recompressing, "recompress", slowly)
    yield gate
    gate.set()


@pytest.fixture
def node(tmp_path: Path, gate: threading.Event) -> Iterator[RunningNode]:
    with RunningNode(tmp_path) as node:
        node.create_topic("slow", partitions=2, compression_type="zstd")
        node.create_topic("fast")
        yield node
        gate.set()


def test_other_topics_other_partitions_and_readers_do_not_wait(node: RunningNode, gate: threading.Event) -> None:
    with RawClient(node.address) as slow, RawClient(node.address) as other:
        for n in range(10):
            slow.send(a_produce(b"%d" % n, topic="slow", acks=-1 if n % 2 else 1), 12)
        node.until(lambda: node.node.broker.recompressor.waiting_bytes > 0)
        assert other.produce(b"fast", topic="fast").error_code == 0
        beside = produce_request(a_batch(b"beside", now_ms=NOW_AND_THEN_MS, codec=Codec.ZSTD), "slow", 1)
        assert only_partition(other.ask(beside, 12)).error_code == 0
        assert other.values("fast") == [b"fast"]
        assert slow.has_nothing()
        held = 10 * (len(a_batch(b"0")) + recompressing.BATCH_OVERHEAD)
        assert f"tailrace_recompressing_bytes {held}\n" in node.on_loop(node.node.metrics.exposition)
        gate.set()
        assert [only_partition(slow.receive()).base_offset for _ in range(10)] == list(range(10))
        assert other.values("slow") == [b"%d" % n for n in range(10)]


def test_one_that_wants_no_answer_holds_up_nothing_and_an_error_of_it_closes(
    node: RunningNode, gate: threading.Event
) -> None:
    with RawClient(node.address) as client:
        client.send_without_answer(a_produce(b"silent", topic="slow", acks=0), 12)
        client.send(ApiVersionsRequest(), 3)
        gate.set()
        client.receive()
        assert client.values("slow", max_wait_ms=10_000) == [b"silent"]
        damaged = a_batch(b"damaged", now_ms=NOW_AND_THEN_MS)
        damaged[-1] ^= 1
        client.send_without_answer(produce_request(damaged, "slow", acks=0), 12)
        assert client.is_closed()


def test_a_stop_does_not_wait_for_all_that_stands_in_line(
    node: RunningNode, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "ANSWERS_S", 0.05)
    monkeypatch.setattr(node_module, "JOBS_S", 0.05)
    with RawClient(node.address) as client:
        for n in range(20):
            client.send(a_produce(b"%d" % n, topic="slow"), 12)
        node.until(lambda: node.node.broker.recompressor.waiting_bytes > 19 * (70 + recompressing.BATCH_OVERHEAD))
        release = threading.Timer(0.5, gate.set)
        release.start()
        node.stop()
        release.join()
        assert node.node.jobs.under_way == 0


def test_a_client_that_goes_away_has_its_batches_appended(node: RunningNode, gate: threading.Event) -> None:
    with RawClient(node.address) as gone, RawClient(node.address) as other:
        for n in range(5):
            gone.send(a_produce(b"%d" % n, topic="slow"), 12)
        node.until(lambda: node.node.broker.recompressor.waiting_bytes > 4 * (70 + recompressing.BATCH_OVERHEAD))
        gone.close()
        node.until(lambda: len(node.node.connections) == 1)
        gate.set()
        other.produce(b"after", topic="slow")
        assert other.values("slow") == [b"0", b"1", b"2", b"3", b"4", b"after"]
