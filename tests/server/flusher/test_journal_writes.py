"""Commits on the loop and in threads: who waits is answered, by either, and others need not wait for a slow disk."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from brokers import fetch_request, from_offset, only_partition, values_of
from nodes import LOOPS, RunningNode
from raw_client import RawClient, a_produce

from tailrace.broker.background.journal import SMALL_FLUSHES
from tailrace.log.disk.interface import Data
from tailrace.log.disk.os_files import OperatingSystemFile, OperatingSystemFiles
from tailrace.log.files.journal_file import FILE_NAME, read_journal
from tailrace.log.log import Log
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.server.flusher import pace
from tailrace.server.flusher.flusher import Flusher
from tailrace.server.net.busy_poll import BusyPoll
from tailrace.server.net.connection import Connection

CONFIGS = {"tailrace.journal.bytes": "1000000"}


def make_journal(node: RunningNode, client: RawClient) -> None:
    for _ in range(SMALL_FLUSHES + 1):
        client.produce(b"before")
    deadline = time.monotonic() + 20
    while node.on_loop(lambda: node.node.broker.flushes.journal) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(params=["the loop", "a thread"])
def who_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(pace.DiskPace, "is_quick", request.param == "the loop")
    return str(request.param)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("who_waits")
def test_what_is_acknowledged_is_seen_by_readers_and_by_the_next_start(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, CONFIGS, loop=LOOPS[loop]) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        assert client.produce(b"committed").error_code == 0
        assert client.values()[-1] == b"committed"
        client.produce(b"last")
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        assert client.values()[-2:] == [b"committed", b"last"]


def test_a_request_that_arrives_while_the_loop_yields_gets_into_the_journal_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client, RawClient(node.address) as other:
        node.create_topic(partitions=2)
        make_journal(node, client)
        other.produce(b"its log is named by now", partition=1)
        time.sleep(0.05)
        commits = node.on_loop(lambda: node.node.metrics.journal_writes)
        node.on_loop(lambda: setattr(node.node.flusher, "_are_ahead", True))

        def let_the_other_send() -> None:
            monkeypatch.undo()
            other.send(a_produce(b"along with it", partition=1), 12)
            time.sleep(0.05)

        monkeypatch.setattr("tailrace.server.flusher.flusher.sched_yield", let_the_other_send)
        client.produce(b"first")
        assert only_partition(other.receive()).error_code == 0
        assert node.on_loop(lambda: node.node.metrics.journal_writes) == commits + 1


def test_the_loop_yields_before_a_journal_write_only_for_a_pipelining_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[None] = []
    monkeypatch.setattr("tailrace.server.flusher.flusher.sched_yield", lambda: times.append(None))
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        for _ in range(3):
            client.produce(b"one by one")
        assert times == []
        for _ in range(2):
            client.socket.sendall(b"".join(client.frame(a_produce(b"ahead"), 12) for _ in range(3)))
            assert [only_partition(client.receive()).error_code for _ in range(3)] == [0] * 3
        assert times == [None], "it is known by the first of these"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("who_waits")
def test_many_clients_of_many_partitions_are_all_answered(tmp_path: Path, loop: str) -> None:
    partitions, each = 8, 40

    def produce(partition: int) -> list[int]:
        with RawClient(node.address) as client:
            found = []
            for first in range(0, each, 4):  # some of them ahead of their answers
                for number in range(first, first + 4):
                    client.send(a_produce(b"%d" % number, partition=partition), 12)
                found += [client.receive().responses[0].partition_responses[0].base_offset for _ in range(4)]
            return found

    with RunningNode(tmp_path, CONFIGS, loop=LOOPS[loop]) as node, RawClient(node.address) as client:
        node.create_topic(partitions=partitions)
        make_journal(node, client)
        with ThreadPoolExecutor(partitions - 1) as pool:
            assert list(pool.map(produce, range(1, partitions))) == [list(range(each))] * (partitions - 1)
        for partition in range(1, partitions):
            assert client.values(partition=partition) == [b"%d" % number for number in range(each)]


def test_the_loop_stays_awake_for_one_whose_commit_it_has_waited_for_itself(
    tmp_path: Path, who_waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, told = BusyPoll.answered, []

    def note(self: BusyPoll, client: Connection, started: float, ended: float) -> None:
        told.append(client)
        answered(self, client, started, ended)

    monkeypatch.setattr(BusyPoll, "answered", note)
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        told.clear()
        client.produce(b"alone")
        (connection,) = node.on_loop(lambda: list(node.node.connections))
        assert node.on_loop(lambda: list(told)) == ([connection] if who_waits == "the loop" else [])
        assert not node.on_loop(lambda: node.node.flusher.loop_waited)


def refuse(self: OperatingSystemFile, position: int, data: Data) -> None:
    raise OSError(5, "Input/output error")


def log_of(node: RunningNode) -> Log:
    (log,) = [log for name, log in node.node.directory.logs.items() if name.topic == "orders"]
    return log


@pytest.fixture
def is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine is like: the disk is quick and idle, and nobody else has sent anything."""
    monkeypatch.setattr(Flusher, "_is_disk_quick", True)
    monkeypatch.setattr(BusyPoll, "is_alone_with", lambda *_: True)


def journal_writes_at_once(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fills in, for each append of a client that is alone, whether it was on disk before the end of the turn.

    The response leaves before that is noted. So read it on the loop, which does so at the end of the turn.
    """
    write, found = Flusher.write_journal_now, []

    def note(self: Flusher) -> None:
        write(self)
        found.append(log_of(node).high_watermark == log_of(node).end_offset)

    monkeypatch.setattr(Flusher, "write_journal_now", note)
    return found


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("is_alone")
def test_who_is_alone_is_committed_at_once_and_readers_that_wait_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    with (
        RunningNode(tmp_path, CONFIGS, loop=LOOPS[loop]) as node,
        RawClient(node.address) as client,
        RawClient(node.address) as reader,
    ):
        node.create_topic()
        make_journal(node, client)
        client.produce(b"the log is dirty now")
        found = journal_writes_at_once(node, monkeypatch)
        commits = node.on_loop(lambda: node.node.metrics.journal_writes)
        end = node.on_loop(lambda: log_of(node).end_offset)
        reader.send(fetch_request(from_offset(end), max_wait_ms=20_000), 12)
        node.until(lambda: not all(connection.owes_nothing for connection in node.node.connections))
        assert reader.has_nothing(0.05)
        assert client.produce(b"alone").base_offset == end
        assert values_of(only_partition(reader.receive())) == [b"alone"]
        assert node.on_loop(lambda: list(found)) == [True]
        assert node.on_loop(lambda: node.node.metrics.journal_writes) == commits + 1
        written = node.on_loop(lambda: log_of(node).segments[-1].log.read_at(0, 1 << 20))
        assert written.endswith(bytes(read_journal(OperatingSystemFiles(), str(tmp_path))[-1].data))


@pytest.mark.usefixtures("is_alone")
def test_who_is_alone_is_waited_for_where_its_journal_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        client.produce(b"the log is dirty now")
        found = journal_writes_at_once(node, monkeypatch)
        monkeypatch.setattr(OperatingSystemFile, "write_synced_at", refuse)
        assert [client.produce(b"all the same").error_code for _ in range(3)] == [0, 0, 0]
        assert node.on_loop(lambda: list(found)) == [False] * 3
        assert client.values()[-3:] == [b"all the same"] * 3
    assert "the journal is disabled" in caplog.text


def test_a_client_that_waits_for_the_disk_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, go_on = OperatingSystemFile.write_synced_at, threading.Event()

    def late(self: OperatingSystemFile, position: int, data: Data) -> None:
        go_on.wait(10)
        write(self, position, data)

    monkeypatch.setattr(pace.DiskPace, "is_quick", False)
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        (connection,) = node.on_loop(lambda: list(node.node.connections))
        assert not node.on_loop(connection.look), "nothing has come"
        monkeypatch.setattr(OperatingSystemFile, "write_synced_at", late)
        client.send(a_produce(b"waits"), 12)
        try:
            node.until(lambda: not connection.owes_nothing)
            assert node.on_loop(connection.look), "nothing more has come, but one is under way"
            client.send(a_produce(b"comes behind"), 12)
        finally:
            go_on.set()
        assert [only_partition(client.receive()).error_code for _ in range(2)] == [0, 0]


def test_while_a_slow_disk_commits_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, is_slow, is_held = OperatingSystemFile.write_synced_at, False, False
    has_begun, go_on = threading.Event(), threading.Event()

    def late(self: OperatingSystemFile, position: int, data: Data) -> None:
        if is_slow and self.path.endswith(FILE_NAME):
            time.sleep(0.3)
        if is_held and self.path.endswith(FILE_NAME):
            has_begun.set()
            go_on.wait(30)
        write(self, position, data)

    monkeypatch.setattr(OperatingSystemFile, "write_synced_at", late)
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client, RawClient(node.address) as other:
        node.create_topic()
        make_journal(node, client)
        is_slow = True
        client.produce(b"the first that is slow may be the loop's")
        is_slow, is_held = False, True
        client.send(a_produce(b"slow"), 12)
        try:
            assert has_begun.wait(20)
            other.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
            assert client.has_nothing(0.02), "the loop waited for the disk itself"
        finally:
            go_on.set()
        assert client.receive().responses[0].partition_responses[0].error_code == 0


def test_a_journal_that_fails_is_not_the_clients_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client:
        node.create_topic()
        make_journal(node, client)
        monkeypatch.setattr(OperatingSystemFile, "write_synced_at", refuse)
        for _ in range(3):
            assert client.produce(b"all the same").error_code == 0
        assert node.on_loop(lambda: node.node.broker.flushes.journal) is None
    assert "the journal is disabled" in caplog.text


def test_beside_clients_that_do_not_wait_for_the_disk_a_thread_commits(tmp_path: Path) -> None:
    with RunningNode(tmp_path, CONFIGS) as node, RawClient(node.address) as client, RawClient(node.address) as other:
        node.create_topic(partitions=2)
        make_journal(node, client)
        pace_of_node = node.node.flusher._pace
        job = SimpleNamespace(logs=[None])

        def has_time() -> bool:
            pace_of_node._least_s = pace_of_node._mean_s = 0.0  # whatever the disk of this machine is like
            return node.node.flusher._has_time_for(job)  # type: ignore[arg-type]

        client.produce(b"waits")
        node.until(lambda: node.node.flusher.is_idle)
        assert node.on_loop(has_time)
        other.produce(b"does not", partition=1, acks=1)
        assert not node.on_loop(has_time)
        client.produce(b"waits")
        node.until(lambda: node.node.flusher.is_idle)
        assert node.on_loop(has_time)
