"""The pages: metrics that Prometheus can read, health, and nothing else."""

import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from errno import EIO
from pathlib import Path

import pytest
from brokers import LocalBroker
from nodes import LOOPS, RunningNode
from raw_client import RawClient, a_produce
from waits import until

from tailrace.broker.transactions import coordinator
from tailrace.broker.transactions.state import State
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.server import http, metrics
from tailrace.testing.faulty_files import FaultyFiles

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = rf'{_NAME}="(?:[^"\\\n]|\\["\\n])*"'
COUNTED = ("tailrace_transactions", "tailrace_transactions_ended_total", "tailrace_transaction_oldest_seconds")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL})(?:,{_LABEL})*)?\}})? (\S+)")


def parse(text: str) -> dict[str, dict[str, float]]:
    """The samples by name and labels. Fails where the text is none that Prometheus takes (format 0.0.4)."""
    assert text.endswith("\n")
    families: dict[str, str] = {}
    samples: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            if word == "TYPE":
                assert name not in families, f"{name} is there twice"
                families[name] = rest
            continue
        matched = _SAMPLE.fullmatch(line)
        assert matched, line
        name, labels, value = matched.groups()
        family = re.sub("_(bucket|sum|count)$", "", name) if families.get(name) is None else name
        assert families[family] in ("counter", "gauge", "histogram")
        assert (labels or "") not in samples.setdefault(name, {}), f"{line} is there twice"
        samples[name][labels or ""] = float(value)
    _check_histograms(families, samples)
    return samples


def _check_histograms(families: dict[str, str], samples: dict[str, dict[str, float]]) -> None:
    for name in (name for name, kind in families.items() if kind == "histogram"):
        series: dict[str, list[tuple[float, float]]] = {}
        for labels, count in samples.get(f"{name}_bucket", {}).items():
            rest, limit = re.fullmatch(r'(.*?),?le="([^"]+)"', labels).groups()  # type: ignore[union-attr]
            series.setdefault(rest, []).append((float(limit), count))
        for labels, buckets in series.items():
            assert buckets == sorted(buckets)
            assert buckets[-1] == (float("inf"), samples[f"{name}_count"][labels])
            assert labels in samples[f"{name}_sum"]


@pytest.fixture(params=LOOPS)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, loop=LOOPS[request.param]) as node:
        yield node


def exchange(node: RunningNode, request: bytes) -> bytes:
    assert node.pages.address is not None
    with socket.create_connection(node.pages.address, timeout=10) as client:
        client.sendall(request)
        answer = b""
        try:
            while received := client.recv(1 << 16):
                answer += received
        except ConnectionError:
            pass
        return answer


def get(node: RunningNode, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    head, _, body = exchange(node, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).partition(
        b"\r\n\r\n"
    )
    status, *headers = head.decode().split("\r\n")
    fields = dict(header.split(": ", 1) for header in headers)
    assert method == "HEAD" or int(fields["Content-Length"]) == len(body)
    return int(status.split(" ")[1]), fields, body.decode()


def test_health(node: RunningNode) -> None:
    assert get(node, "/healthz")[0] == 200
    assert get(node, "/readyz") == (200, get(node, "/readyz")[1], "ready\n")
    assert get(node, "/readyz?x=1")[0] == 200


def test_a_broker_that_stops_is_not_ready(node: RunningNode) -> None:
    node.on_loop(lambda: setattr(node.node, "is_stopping", True))
    assert get(node, "/readyz")[0] == 503
    assert get(node, "/healthz")[0] == 200


def test_a_broker_with_a_log_that_is_offline_is_not_ready_and_names_it(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with RunningNode(tmp_path, files=files) as node, RawClient(node.address) as client:
        node.create_topic("orders", 2)
        client.produce(b"taken")
        client.produce(b"taken", partition=1)
        assert get(node, "/readyz")[0] == 200
        files.fail("sync", EIO, name=".log")
        assert client.produce(b"refused").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        status, _, text = get(node, "/readyz")
        assert (status, text.count("\n")) == (503, 1)
        assert text.startswith("orders-0 is offline: a flush failed in ")
        assert "Input/output error" in text
        assert parse(get(node, "/metrics")[2])["tailrace_logs_offline"][""] == 1
        assert client.produce(b"taken", partition=1).error_code == ErrorCode.NONE
        assert get(node, "/healthz")[0] == 200


def test_a_broker_with_a_lost_partition_is_not_ready_and_counts_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
    shutil.rmtree(tmp_path / "orders-0")
    with RunningNode(tmp_path) as node:
        status, _, body = get(node, "/readyz")
        assert status == 503
        assert "orders-0" in body
        assert parse(get(node, "/metrics")[2])["tailrace_partitions_unavailable"] == {"": 1}
        assert get(node, "/healthz")[0] == 200


def test_what_is_not_there(node: RunningNode) -> None:
    assert get(node, "/")[0] == 404
    assert get(node, "/metrics/../etc/passwd")[0] == 404
    assert get(node, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize("hosts", [["evil.example"], ["localhost", "evil.example"], ["127.0.0.2:9464"], []])
def test_a_host_that_is_not_known_is_refused(node: RunningNode, hosts: list[str]) -> None:
    """As a web page sends it whose name resolves to this machine."""
    fields = "".join(f"Host: {host}\r\n" for host in hosts)
    answer = exchange(node, f"GET /metrics HTTP/1.1\r\n{fields}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"tailrace_" not in answer.replace(b"tailrace_http", b"")


def test_hosts_of_the_config_are_known(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"tailrace.http.hosts": "prometheus.example, other.example"}) as node:
        for host in ("other.example:9464", "prometheus.example", "127.0.0.1"):
            answer = exchange(node, f"GET /healthz HTTP/1.1\r\nhost:{host}\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), host


def test_head_has_no_body(node: RunningNode) -> None:
    status, headers, body = get(node, "/healthz", "HEAD")
    assert (status, body) == (200, "")
    assert headers["Content-Length"] == "3"


def test_metrics_are_what_prometheus_reads(node: RunningNode) -> None:
    node.create_topic("a.topic_with-all", 2)
    with RawClient(node.address) as client:
        client.ask(ApiVersionsRequest(), 3)
        client.produce(b"one", b"two", topic="a.topic_with-all", partition=1)
        _, headers, text = get(node, "/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = parse(text)
    assert samples["tailrace_connections"][""] == 1
    assert samples["tailrace_connections_opened_total"][""] == 1
    assert samples["tailrace_topics"][""] == 2
    assert samples["tailrace_logs"][""] == 2
    assert samples["tailrace_logs_offline"][""] == 0
    assert samples["tailrace_topic_produced_records_total"] == {'topic="a.topic_with-all"': 2}
    assert samples["tailrace_request_duration_seconds_count"] == {'api="produce"': 1, 'api="api_versions"': 1}
    assert samples["tailrace_flush_duration_seconds_count"][""] >= 1
    assert samples["tailrace_received_bytes_total"][""] > 0
    assert samples["tailrace_sent_bytes_total"][""] > 0
    assert samples["tailrace_inflight_bytes"][""] == 0


def test_groups_are_counted(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
        )
        client.send(request, 3)
        client.has_nothing()  # others may come yet
        samples = parse(get(node, "/metrics")[2])
    assert samples["tailrace_groups"]['state="PreparingRebalance"'] == 1
    assert samples["tailrace_groups"]['state="Stable"'] == 0
    assert samples["tailrace_group_members"][""] == 1
    assert samples["tailrace_group_rebalances_total"][""] == 0


def test_transactions_are_counted(node: RunningNode) -> None:
    node.create_topic()
    unused = parse(get(node, "/metrics")[2])
    assert node.on_loop(lambda: node.node.broker.used_transactions) is None
    with RawClient(node.address) as client:
        begun = client.ask(InitProducerIdRequest(transactional_id="copier", transaction_timeout_ms=60_000), 4)
        assert parse(get(node, "/metrics")[2])["tailrace_transactions"]['state="empty"'] == 1
        topic = AddPartitionsToTxnTopic(name="orders", partitions=[0])
        producer = {"transactional_id": "copier", "producer_id": begun.producer_id, "producer_epoch": 0}
        client.ask(AddPartitionsToTxnRequest(topics=[topic], **producer), 3)
        until(lambda: parse(get(node, "/metrics")[2])["tailrace_transaction_oldest_seconds"][""] > 0, 10)
        during = parse(get(node, "/metrics")[2])
        client.ask(EndTxnRequest(committed=True, **producer), 3)
    after = parse(get(node, "/metrics")[2])
    assert [set(after[name]) for name in COUNTED] == [set(unused[name]) for name in COUNTED]
    assert {label for label, count in during["tailrace_transactions"].items() if count} == {'state="ongoing"'}
    assert not any(during["tailrace_transactions_ended_total"].values())
    assert {label for label, count in after["tailrace_transactions"].items() if count} == {'state="complete_commit"'}
    assert {label: count for label, count in after["tailrace_transactions_ended_total"].items() if count} == {
        'result="committed"': 1
    }
    assert after["tailrace_transaction_oldest_seconds"][""] == unused["tailrace_transaction_oldest_seconds"][""] == 0
    assert after["tailrace_transaction_duration_seconds_count"][""] == 1
    assert after["tailrace_transaction_duration_seconds_sum"][""] > 0


def test_transactions_are_counted_again_after_a_crash(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        topic = AddPartitionsToTxnTopic(name="orders", partitions=[0])
        for name in ("idle", "early", "late"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            identity = {"transactional_id": name, "producer_id": broker.ask(request, 4).producer_id}
            if name != "idle":
                broker.now_ms += 1000
                broker.ask(AddPartitionsToTxnRequest(topics=[topic], **identity), 3)
        before = broker.broker.transactions
        broker.kill()
        after = broker.broker.transactions
        assert after is not before
        assert +after.states == +before.states == {State.EMPTY: 1, State.ONGOING: 2}
        assert after.oldest_started_ms == before.oldest_started_ms == broker.now_ms - 1000


def test_every_state_and_result_of_transactions_has_a_sample() -> None:
    assert [state.name.lower() for state in State if state is not State.DEAD] == list(metrics.TRANSACTION_STATES)
    assert coordinator.RESULTS == metrics.TRANSACTION_RESULTS


def total_size(node: RunningNode) -> int:
    return node.on_loop(lambda: sum(log.size for log in node.node.directory.logs.values()))


def test_the_disk_and_what_was_deleted_are_counted(node: RunningNode) -> None:
    node.create_topic()
    wanted = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    with RawClient(node.address) as client:
        client.produce(b"x")
        node.on_loop(lambda: node.node.broker.partition("orders", 0).log.roll())  # type: ignore[union-attr]
        client.produce(b"y")
        client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
    node.until(lambda: node.node.broker.disk_reserve.found is not None)
    until(lambda: parse(get(node, "/metrics")[2])["tailrace_logs_bytes"][""] == total_size(node), 10)
    samples = parse(get(node, "/metrics")[2])
    assert samples["tailrace_deleted_bytes_total"]['reason="delete_records"'] > 60
    assert samples["tailrace_deleted_bytes_total"]['reason="age"'] == 0
    assert samples["tailrace_deleted_segments_total"]['reason="delete_records"'] == 1
    assert samples["tailrace_topic_deleted_bytes_total"]['topic="orders"'] > 60
    free, reserve = samples["tailrace_disk_free_bytes"][""], samples["tailrace_disk_reserve_bytes"][""]
    assert (samples["tailrace_disk_is_low"][""] == 1) is (free < reserve)
    assert samples["tailrace_disk_budget_bytes"][""] == -1
    assert samples["tailrace_refused_appends_total"][""] == 0


def test_what_is_held_of_requests_is_counted(node: RunningNode) -> None:
    node.create_topic()
    with RawClient(node.address) as client:
        half = client.frame(a_produce(b"x" * 300_000), 12)[:200_000]
        client.socket.sendall(half)
        node.until(lambda: node.node.budget.total >= 200_000)
        assert parse(get(node, "/metrics")[2])["tailrace_inflight_bytes"][""] >= 200_000
    node.until(lambda: node.node.budget.total == 0)


@pytest.mark.parametrize("request_bytes", [b"\r\n\r\n", b"\0\xff\xff\xff\r\n\r\n", b"GET\r\n\r\n", b"G" * 20_000])
def test_what_is_no_request_is_answered_with_an_error_or_not_at_all(node: RunningNode, request_bytes: bytes) -> None:
    answer = exchange(node, request_bytes)
    assert not answer or answer.split(b" ")[1] in (b"403", b"404", b"405")
    assert get(node, "/healthz")[0] == 200


def test_whoever_says_nothing_or_reads_nothing_is_cut_off(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(node.node.metrics, "exposition", lambda: "x" * (64 << 20))
    assert node.pages.address is not None
    with (
        socket.create_connection(node.pages.address, timeout=5) as silent,
        socket.create_connection(node.pages.address, timeout=5) as deaf,
    ):
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        node.until(lambda: not node.pages._connections)


def test_there_are_only_so_many_at_once(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    assert node.pages.address is not None
    first = [socket.create_connection(node.pages.address, timeout=5) for _ in range(2)]
    node.until(lambda: len(node.pages._connections) == 2)
    assert exchange(node, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    for one in first:
        one.close()
    node.until(lambda: not node.pages._connections)
    assert get(node, "/healthz")[0] == 200


def test_a_stop_does_not_wait_for_those_who_say_nothing(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 300.0)  # longer than a test may take
    assert node.pages.address is not None
    with socket.create_connection(node.pages.address, timeout=5):
        node.until(lambda: node.pages._connections)
        node.stop()
