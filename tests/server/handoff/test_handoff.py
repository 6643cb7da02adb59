"""Connections that are handed off to the helper process, and come back: nothing is lost, and nobody is left behind."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from brokers import fetch_request, from_offset, only_partition
from compat.clients.java import TOOLS, run_tool
from nodes import LOOPS, RunningNode
from raw_client import RawClient
from waits import until

from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.records.batch import split
from tailrace.server import node as nodes
from tailrace.server.handoff import handoff, helper_process
from tailrace.server.handoff.handoff import Backoff
from tailrace.server.handoff.messages import Returned
from tailrace.server.net import outbox as sending
from tailrace.util import children

BATCHES = 60
VALUE = bytes(range(256)) * 400  # 100 KB
LIMIT = 300_000
VERSION = 12


@pytest.fixture
def all_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader is taken for one of cold history, and handed off whenever it can be."""
    monkeypatch.setattr(sending.Outbox, "is_cold", property(lambda _: True, lambda *_: None))
    monkeypatch.setattr(handoff, "BACKOFF_S", 0.0)
    monkeypatch.setattr(handoff, "REFUSED_S", 0.0)


@pytest.fixture(params=LOOPS)
def node(tmp_path: Path, request: pytest.FixtureRequest, all_is_cold: None) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, loop=LOOPS[request.param]) as node:
        node.create_topic(segment_bytes=str(2 << 20))
        with RawClient(node.address) as client:
            for _ in range(BATCHES):
                client.produce(VALUE)
        node.until(lambda: node.node.handoff.helper.prepare())
        yield node


def ask(offset: int) -> Any:
    return fetch_request(from_offset(offset, 0, LIMIT), max_wait_ms=0)


def read(client: RawClient, offset: int) -> int:
    """What follows."""
    answer = only_partition(client.ask(ask(offset), VERSION))
    assert answer.error_code == 0
    *_, (_, last) = split(bytes(answer.records))
    return last.next_offset


def caught_up_to_four(client: RawClient) -> None:
    """Reads so far that the next Fetch would be handed off."""
    assert read(client, 0) == 2
    assert read(client, 2) == 4


def stopped(node: RunningNode) -> Any:
    """The process, which does nothing any more."""
    node.until(lambda: not node.node.handoff.helper._handed_off)
    process = node.node.handoff.helper._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T")
    return process


def stuck(node: RunningNode, client: RawClient) -> Any:
    """The process, which has the client's connection, with a request from offset 4 on, and does nothing any more."""
    caught_up_to_four(client)
    process = stopped(node)
    client.send(ask(4), VERSION)
    node.until(lambda: node.node.handoff.helper._handed_off)
    return process


def test_a_reader_gets_everything_in_order_and_most_of_it_from_the_other_process(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        offset, answers = 0, 0
        before = node.on_loop(lambda: node.node.metrics.bytes_out)
        while offset < BATCHES:
            offset = read(client, offset)
            answers += 1
        sent = BATCHES * len(VALUE)
        node.until(lambda: node.node.metrics.bytes_out - before >= sent)
        assert node.on_loop(lambda: node.node.metrics.bytes_out - before) < 1.05 * sent
    handed_off = node.on_loop(lambda: node.node.handoff.helper.handed_off)
    assert 1 <= handed_off < answers / 2


class Session:
    """A client that asks as Java's does: within a fetch session."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.epoch = 0
        self.id = 0

    def request(self, *wanted: Any) -> Any:
        return fetch_request(*wanted, max_wait_ms=0, session_id=self.id, session_epoch=self.epoch)

    def ask(self, *wanted: Any) -> Any:
        answer = self.client.ask(self.request(*wanted), VERSION)
        self.id = answer.session_id
        self.epoch += 1
        return answer

    def read(self, *offset: int) -> tuple[int, int]:
        """From where on, or from where the last one did; the first that was read, and what follows."""
        answer = only_partition(self.ask(*(from_offset(each, 0, LIMIT) for each in offset)))
        batches = [header for _, header in split(bytes(answer.records))]
        return batches[0].base_offset, batches[-1].next_offset


def test_a_reader_with_a_session_is_handed_off_and_its_session_knows_how_far_it_came(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        session = Session(client)
        answers, offset, last = 0, 0, 0
        while offset < BATCHES:
            last = offset
            first, offset = session.read(last)
            assert first == last
            answers += 1
            if answers % 10 == 0:  # it is the broker's to say where that was
                assert session.read() == (last, offset)
        assert session.ask(from_offset(BATCHES, 0, LIMIT)).error_code == 0
    assert 1 <= node.on_loop(lambda: node.node.handoff.helper.handed_off) < answers


def test_a_session_goes_on_where_its_process_has_died(node: RunningNode) -> None:
    """By another connection, as one that is lost is followed by."""
    with RawClient(node.address) as client:
        session = Session(client)
        assert [session.read(offset) for offset in (0, 2, 4)] == [(0, 2), (2, 4), (4, 6)]
        process = stopped(node)
        client.send(session.request(from_offset(6, 0, LIMIT)), VERSION)
        node.until(lambda: node.node.handoff.helper._handed_off)
        process.kill()
        assert client.is_closed()
    with RawClient(node.address) as client:
        session.client = client
        assert session.read(6) == (6, 8), "of that epoch nothing was answered"
        session.epoch = 0
        assert session.read(8) == (8, 10)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[RunningNode]:
    """A node with a topic that was just written: all of it is in the page cache."""
    with RunningNode(tmp_path) as node:
        node.create_topic()
        with RawClient(node.address) as client:
            for _ in range(BATCHES):
                client.produce(VALUE)
        yield node


def read_all(client: RawClient) -> None:
    offset = 0
    while offset < BATCHES:
        offset = read(client, offset)


def test_who_reads_on_through_what_is_in_memory_is_handed_off_too(
    history: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "AHEAD_BYTES_MIN", 20 * len(VALUE))
    monkeypatch.setattr(handoff, "REFUSED_S", 0.0)  # as one is at the end of the log
    node = history
    with RawClient(node.address) as client:
        read_all(client)
        node.until(lambda: node.node.handoff.helper._is_ready)
        before = node.on_loop(lambda: node.node.metrics.bytes_out)
        read_all(client)
        node.until(lambda: node.node.metrics.bytes_out - before >= BATCHES * len(VALUE))
        handed_off = node.on_loop(lambda: node.node.handoff.helper.handed_off)
    assert 1 <= handed_off < 10, "the others were answered by the other process"


@pytest.mark.needs("kafka")
def test_javas_consumer_is_handed_off(history: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff, "AHEAD_BYTES_MIN", 0)
    node = history
    node.until(lambda: node.node.handoff.helper.prepare())
    arguments = ("--bootstrap-server", "{}:{}".format(*node.address), "--topic", "orders", "--num-records", BATCHES)
    said = run_tool(f"{TOOLS}.ConsumerPerformance", *map(str, arguments))
    assert said.splitlines()[-1].split(", ")[4] == str(BATCHES)
    assert node.on_loop(lambda: node.node.handoff.helper.handed_off)


def test_where_little_lies_ahead_no_consumer_is_handed_off_and_no_process_is_started(history: RunningNode) -> None:
    assert BATCHES * len(VALUE) < handoff.AHEAD_BYTES_MIN
    with RawClient(history.address) as client:
        read_all(client)
        read_all(client)
    assert history.on_loop(lambda: history.node.handoff.helper._control) is None


def test_who_reads_in_small_pieces_is_not_handed_off(history: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff, "AHEAD_BYTES_MIN", 0)
    with RawClient(history.address) as client:
        for offset in range(10):
            request = fetch_request(from_offset(offset, 0, len(VALUE) + 1000), max_wait_ms=0)
            assert only_partition(client.ask(request, VERSION)).records
    assert history.on_loop(lambda: history.node.handoff.helper._control) is None


def test_who_pauses_between_his_requests_is_not_handed_off_again_for_a_while(
    history: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "AHEAD_BYTES_MIN", 0)
    monkeypatch.setattr(handoff, "BACKOFF_S", 60.0)
    node = history
    node.until(lambda: node.node.handoff.helper.prepare())
    with RawClient(node.address) as client:
        offset = 0
        for number in range(6):
            offset = read(client, offset)
            node.until(lambda: not node.node.handoff.helper._handed_off)  # which does not wait for it for long
            assert node.on_loop(lambda: node.node.handoff.helper.handed_off) == min(max(number - 1, 0), 1)


@pytest.mark.parametrize(
    ("returned", "is_of_use"),
    [
        (Returned(1, seconds=[0.0001] * 2), True),
        (Returned(1, seconds=[0.0001] * 2, unsent=(b"", 0, 1, b"")), True),  # its time was over
        (Returned(1, seconds=[0.0001] * 2, unsent=(b"", 0, 1, b""), was_slow=True), False),
        (Returned(1, seconds=[0.0001]), False),
        (Returned(1), False),
    ],
)
def test_the_pause_before_the_next_hand_off_doubles_after_each_useless_one(returned: Returned, is_of_use: bool) -> None:
    backoff, pauses, now = Backoff(), [], 1000.0
    for _ in range(8):
        backoff.returned(returned, now)
        pauses.append(max(0.0, backoff.not_before - now))
        now += 100
    if is_of_use:
        assert not any(pauses)
    else:
        assert pauses == [min(handoff.BACKOFF_S * 2**n, handoff.BACKOFF_MAX_S) for n in range(8)]
        backoff.returned(Returned(1, seconds=[0.0001] * 2), now)
        backoff.returned(returned, now)
        assert backoff.not_before == now + handoff.BACKOFF_S


def test_one_more_than_can_be_handed_off_is_served_by_the_broker(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_process, "HANDED_OFF_MAX", 1)
    with RawClient(node.address) as client, RawClient(node.address) as other:
        process = stuck(node, client)
        read_all(other)
        process.send_signal(signal.SIGCONT)
        assert only_partition(client.receive()).records


def test_whatever_is_asked_in_between_is_answered(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        offset = 0
        for _ in range(5):
            offset = read(client, offset)
            offset = read(client, offset)
            assert client.ask(MetadataRequest(topics=None), VERSION).topics
            assert client.produce(b"more").error_code == 0
            client.send(ask(offset), VERSION)  # and some at once
            client.send(ask(0), VERSION)
            client.send(MetadataRequest(topics=None), VERSION)
            *_, (_, last) = split(bytes(only_partition(client.receive()).records))
            offset = last.next_offset
            (_, first), *_ = split(bytes(only_partition(client.receive()).records))
            assert first.base_offset == 0
            assert client.receive().topics
    assert node.on_loop(lambda: node.node.handoff.helper.handed_off)


def test_a_slow_client_gets_every_byte(node: RunningNode) -> None:
    with RawClient(node.address, receive_buffer=4096) as client:
        caught_up_to_four(client)
        client.send(ask(4), VERSION)
        time.sleep(0.05)  # so that it comes back, with most of the answer
        answer = only_partition(client.receive())
        assert [header.base_offset for _, header in split(bytes(answer.records))] == [4, 5]
        assert read(client, 6) == 8


def test_a_client_that_goes_leaves_nothing_behind(node: RunningNode) -> None:
    client = RawClient(node.address)
    caught_up_to_four(client)
    client.send(ask(4), VERSION)
    client.reset()
    node.until(lambda: not node.node.connections)
    node.until(lambda: not node.node.handoff.helper._handed_off)


def test_one_that_is_closed_while_it_is_handed_off_is_no_matter(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        process = stuck(node, client)
        node.on_loop(lambda: [one.close() for one in list(node.node.connections)])
        process.send_signal(signal.SIGCONT)
        node.until(lambda: not node.node.handoff.helper._handed_off)
    with RawClient(node.address) as client:
        assert read(client, 0) == 2


def test_a_process_that_dies_takes_its_clients_with_it_and_another_takes_its_place(node: RunningNode) -> None:
    with RawClient(node.address) as client, RawClient(node.address) as other:
        process = stuck(node, client)
        process.kill()
        assert client.is_closed()
        assert read(other, 0) == 2
    assert process.wait(10) == -signal.SIGKILL
    node.until(lambda: node.node.handoff.helper.prepare())
    with RawClient(node.address) as client:
        before = node.on_loop(lambda: node.node.handoff.helper.handed_off)
        caught_up_to_four(client)
        assert read(client, 4) == 6
        assert node.on_loop(lambda: node.node.handoff.helper.handed_off) > before


def test_after_a_few_deaths_there_is_no_other_and_readers_are_served_all_the_same(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_process, "DEATHS_MAX", 1)
    process = node.node.handoff.helper._process
    assert process is not None
    process.kill()
    node.until(lambda: not node.node.handoff.helper.prepare())
    with RawClient(node.address) as client:
        before = node.on_loop(lambda: node.node.handoff.helper.handed_off)
        caught_up_to_four(client)
        assert read(client, 4) == 6
        assert node.on_loop(lambda: node.node.handoff.helper.handed_off) == before
    process.wait(10)


def test_where_no_process_can_be_had_readers_are_served_all_the_same(
    tmp_path: Path, all_is_cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "command", lambda *_: ["/no/such/program"])
    with RunningNode(tmp_path) as node:
        node.create_topic(segment_bytes=str(2 << 20))
        with RawClient(node.address) as client:
            for _ in range(BATCHES):
                client.produce(VALUE)
            offset = 0
            while offset < BATCHES:
                offset = read(client, offset)
        assert node.on_loop(lambda: node.node.handoff.helper.handed_off) == 0


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_node_stops_while_connections_are_handed_off(
    node: RunningNode, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_process, "STOP_S", 0.1)
    monkeypatch.setattr(nodes, "ANSWERS_S", 0.1)
    with RawClient(node.address) as client:
        process = stuck(node, client)
        if not is_stuck:
            process.send_signal(signal.SIGCONT)
        node.stop()
        assert process.poll() is not None
        assert not node.node.handoff.helper._handed_off


def test_a_process_that_hangs_is_killed_and_its_clients_can_come_again(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_process, "LOST_S", 0.2)
    with RawClient(node.address) as client:
        caught_up_to_four(client)
        process = stopped(node)
        client.send(ask(4), VERSION)
        assert client.is_closed()
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_a_whole_group_of_processes_is_sent_are_the_brokers_matter(
    node: RunningNode, number: signal.Signals
) -> None:
    process = node.node.handoff.helper._process
    assert process is not None
    process.send_signal(number)
    with RawClient(node.address) as client:
        caught_up_to_four(client)
        assert read(client, 4) == 6
    assert process.poll() is None
    assert node.on_loop(lambda: node.node.handoff.helper.handed_off)


def test_a_batch_that_is_larger_than_a_hand_off_is_answered_by_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "HANDED_OFF_BYTES", 2 * LIMIT)
    with RunningNode(tmp_path) as node, RawClient(node.address) as client:
        node.create_topic(segment_bytes=str(2 << 20))
        for _ in range(8):
            client.produce(VALUE * 7)
        read(client, 0)
        node.until(lambda: node.node.handoff.helper.prepare())
        for one in node.on_loop(lambda: list(node.node.connections)):
            node.on_loop(lambda one=one: setattr(one.outbox, "is_cold", True))  # type: ignore[misc]
        assert read(client, 1) == 2
        assert node.on_loop(lambda: node.node.handoff.helper.handed_off) == 1


def children_of(process_id: int) -> list[int]:
    tasks = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_gone(process_id: int) -> bool:
    return state_of(process_id) in ("Z", None)


def state_of(process_id: int) -> str | None:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def test_a_broker_that_is_killed_takes_the_process_with_it(tmp_path: Path) -> None:
    """All of it for real: the page cache has forgotten the history."""
    with BrokerProcess(tmp_path / "data", "--set", "log.segment.bytes=2097152") as broker:
        with RawClient(broker.address) as client:
            client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), VERSION)
            for _ in range(BATCHES):
                client.produce(VALUE)
            started = until(lambda: children_of(broker.process.pid) if read_cold(client, tmp_path) else [])
        broker.kill()
        until(lambda: all(map(is_gone, started)))


def read_cold(client: RawClient, directory: Path) -> bool:
    for path in (directory / "data" / "orders-0").glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        is_forgotten = not is_cached(descriptor)
        os.close(descriptor)
        if not is_forgotten:
            pytest.skip("this file system does not forget")
    offset = 0
    while offset < BATCHES:
        offset = read(client, offset)
    return True


def is_cached(descriptor: int) -> bool:
    try:
        return bool(os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT))
    except BlockingIOError:
        return False


def test_the_loop_does_not_read_what_is_handed_off(node: RunningNode) -> None:
    with RawClient(node.address) as client:
        process = stuck(node, client)
        client.send(MetadataRequest(topics=None), VERSION)
        assert client.has_nothing()
        process.send_signal(signal.SIGCONT)
        assert only_partition(client.receive()).records
        assert client.receive().topics
