"""A node: it starts, says where it is, stops cleanly, and keeps others from its directory."""

import errno
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nodes import LOOPS, RunningNode
from raw_client import RawClient, a_produce
from waits import until

from tailrace.broker.core.api import Endpoint
from tailrace.broker.core.delayed import STEPS_AT_ONCE, IncrementalResponse
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.errors import DirectoryInUse
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.server import node as node_module
from tailrace.server.net import listener as listener_module
from tailrace.server.net.listener import bind
from tailrace.server.node import Node
from tailrace.server.settings import Listen
from tailrace.testing.faulty_files import FaultyFiles

CLEAN = ".kafka_cleanshutdown"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize("loop", LOOPS)
def test_what_was_acknowledged_is_there_after_a_stop_and_a_start(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, loop=LOOPS[loop]) as node:
        node.create_topic()
        assert not (tmp_path / CLEAN).exists()
        with RawClient(node.address) as client:
            client.produce(b"one")
            client.produce(b"two", acks=1)
    assert (tmp_path / CLEAN).exists()
    with RunningNode(tmp_path, loop=LOOPS[loop]) as node, RawClient(node.address) as client:
        assert node.on_loop(lambda: node.node.directory.was_clean)
        assert client.values() == [b"one", b"two"]


def test_nothing_is_left_of_a_stopped_node(tmp_path: Path) -> None:
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with RunningNode(tmp_path) as node:
        node.create_topic()
        clients = [RawClient(node.address) for _ in range(5)]
        for client in clients:
            client.produce(b"one")
    assert all(client.is_closed() for client in clients)
    for client in clients:
        client.close()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_that_outlasts_the_wait_of_a_stop_is_still_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Or a thread would be left, beside a directory that is closed."""
    monkeypatch.setattr("tailrace.server.node.JOBS_S", 0.01)
    before, done = threading.active_count(), []

    class Slow:
        def run(self) -> None:
            time.sleep(0.1)
            done.append(self)

        def finish(self) -> None: ...

    with RunningNode(tmp_path, loop=LOOPS[loop]) as node:
        start = node.node.start_job
        node.on_loop(lambda: start(Slow(), lambda: start(Slow(), lambda: start(Slow(), lambda: None))))
    assert len(done) == 3
    assert threading.active_count() == before
    assert (tmp_path / CLEAN).exists()


def test_what_goes_on_in_turns_is_left_alone_at_a_stop_that_has_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.server.node.JOBS_S", 0.05)
    steps = itertools.count()

    def endless() -> Generator[None, None, None]:
        for _ in steps:
            yield

    with RunningNode(tmp_path) as node:
        node.on_loop(lambda: IncrementalResponse(endless(), node.node.start_job))
    assert next(steps) > 2 * STEPS_AT_ONCE, "it went on for a while"
    assert (tmp_path / CLEAN).exists()


def test_two_nodes_do_not_share_a_directory(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as first:
        with pytest.raises(DirectoryInUse), RunningNode(tmp_path):
            pass
        with RawClient(first.address) as client:
            client.ask(ApiVersionsRequest(), 3)


def test_an_address_that_is_taken_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        both = [Listen("127.0.0.1", 0), Listen(*address)]
        with pytest.raises(OSError, match="in use") as raised, RunningNode(tmp_path, listen=both):
            pass
        assert raised.value.errno == errno.EADDRINUSE
    assert not list(tmp_path.iterdir())
    with RunningNode(tmp_path):
        pass


def test_a_name_that_is_none_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a valid host name"), RunningNode(tmp_path, listen=[Listen("a..b", 0)]):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loop", LOOPS)
def test_an_address_that_another_takes_at_the_last_moment(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two may have bound it before either listens. The one that comes second lets go of all that it had."""
    before = len(os.listdir("/proc/self/fd"))
    real = Node._open
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", 0))

    def open_late(self: Node) -> None:
        real(self)
        taken.listen()

    monkeypatch.setattr(Node, "_open", open_late)
    both = [Listen("127.0.0.1", 0), Listen(*taken.getsockname())]
    with pytest.raises(OSError, match="in use"), RunningNode(tmp_path, listen=both, loop=LOOPS[loop]):
        pass
    taken.close()
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    with RunningNode(tmp_path, loop=LOOPS[loop]):
        pass


def addresses(client: RawClient) -> list[tuple[str, int]]:
    return [(broker.host, broker.port) for broker in client.ask(MetadataRequest(topics=[]), 12).brokers]


def test_clients_are_told_the_address_they_came_by(tmp_path: Path) -> None:
    with RunningNode(tmp_path, listen=[Listen("0.0.0.0", 0)]) as node:
        port = node.address[1]
        assert port > 0
        for host in ("127.0.0.1", "127.0.0.2"):
            with RawClient((host, port)) as client:
                assert addresses(client) == [(host, port)]


def test_or_the_one_that_is_advertised_for_their_listener(tmp_path: Path) -> None:
    listen = [Listen("127.0.0.1", 0, Endpoint("inside.example.org", 1)), Listen("127.0.0.1", 0)]
    with RunningNode(tmp_path, listen=listen) as node:
        first, second = ((one.host, one.port) for one in node.node.listeners)
        with RawClient(first) as client:
            assert addresses(client) == [("inside.example.org", 1)]
        with RawClient(second) as client:
            assert addresses(client) == [second]


@needs_ipv6
@pytest.mark.parametrize("loop", LOOPS)
def test_ipv6(tmp_path: Path, loop: str) -> None:
    with RunningNode(tmp_path, listen=[Listen("::1", 0)], loop=LOOPS[loop]) as node:
        assert node.address[0] == "::1"
        with RawClient(node.address) as client:
            assert addresses(client) == [node.address]
            assert next(iter(node.node.connections)).peer.startswith("[::1]:")


def test_a_name_with_several_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with ExitStack() as undo:
        sockets = bind("both", 0, undo)
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "127.0.0.2"]


def test_an_address_of_a_name_that_this_machine_does_not_have_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere, here])
    with ExitStack() as undo:
        (_,) = bind("localhost", 0, undo)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere])
    with pytest.raises(OSError, match=r"elsewhere:0: .*assign"), ExitStack() as undo:
        bind("elsewhere", 0, undo)


# Who may connect, and for how long


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"max.connections": "2"}) as node:
        first, second = RawClient(node.address), RawClient(node.address)
        second.ask(ApiVersionsRequest(), 3)
        with RawClient(node.address) as third:
            assert third.is_closed()
        first.close()
        node.until(lambda: len(node.node.connections) == 1)
        with RawClient(node.address) as fourth:
            fourth.ask(ApiVersionsRequest(), 3)
        second.close()


def test_and_so_many_from_one_address(tmp_path: Path) -> None:
    listen = [Listen("0.0.0.0", 0)]
    with RunningNode(tmp_path, {"max.connections.per.ip": "1"}, listen=listen) as node:
        port = node.address[1]
        with RawClient(("127.0.0.1", port)) as first, RawClient(("127.0.0.1", port)) as second:
            first.ask(ApiVersionsRequest(), 3)
            assert second.is_closed()
        node.until(lambda: not node.node._by_host)
        with RawClient(("127.0.0.1", port)) as third:
            third.ask(ApiVersionsRequest(), 3)


def test_one_that_is_idle_is_closed_and_one_that_waits_is_not(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"connections.max.idle.ms": "300"}) as node:
        node.create_topic()
        with RawClient(node.address) as idle, RawClient(node.address) as parked, RawClient(node.address) as busy:
            idle.ask(ApiVersionsRequest(), 3)
            began = time.monotonic()
            parked.send(a_fetch(max_wait_ms=1500), 12)
            while time.monotonic() - began < 1.2:
                busy.ask(ApiVersionsRequest(), 3)
                time.sleep(0.05)
            assert idle.is_closed(0.1)
            parked.receive()
            parked.ask(ApiVersionsRequest(), 3)  # it is not taken for idle the moment it is answered


def test_minus_one_is_for_ever(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"connections.max.idle.ms": "-1"}) as node, RawClient(node.address) as client:
        client.ask(ApiVersionsRequest(), 3)
        time.sleep(0.6)
        client.ask(ApiVersionsRequest(), 3)


def test_a_request_that_does_not_go_on_is_given_up(tmp_path: Path) -> None:
    with (
        RunningNode(tmp_path, {"tailrace.write.timeout.ms": "300"}) as node,
        RawClient(node.address) as slow,
        RawClient(node.address) as idle,
    ):
        slow.socket.sendall(slow.frame(MetadataRequest(topics=None), 12)[:-1])
        assert slow.is_closed(5)
        idle.ask(ApiVersionsRequest(), 3)


def a_fetch(**fields: Any) -> Any:
    from brokers import fetch_request, from_offset

    return fetch_request(from_offset(0), **fields)


# Accepting


@pytest.mark.parametrize("loop", LOOPS)
def test_without_descriptors_it_waits_and_goes_on(tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "REST_S", 0.1)
    with RunningNode(tmp_path, loop=LOOPS[loop]) as node, RawClient(node.address) as before:
        before.ask(ApiVersionsRequest(), 3)
        listener = node.node.listeners[0]
        real = listener._socket
        refusing = Refusing(real, errno.EMFILE)
        node.on_loop(lambda: setattr(listener, "_socket", refusing))
        with RawClient(node.address) as client:
            deadline = time.monotonic() + 5
            while not refusing.count and time.monotonic() < deadline:
                time.sleep(0.01)
            before.ask(ApiVersionsRequest(), 3)
            assert refusing.count <= 3, "it spins"
            node.on_loop(lambda: setattr(listener, "_socket", real))
            client.ask(ApiVersionsRequest(), 3)


class Refusing:
    """A socket on which accepting fails."""

    def __init__(self, sock: socket.socket, error: int) -> None:
        self._socket = sock
        self._error = error
        self.count = 0

    def accept(self) -> Any:
        self.count += 1
        raise OSError(self._error, os.strerror(self._error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_clients_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.create_topic()
        with RawClient(node.address) as client:
            client.produce(b"x" * 500_000)
        node.until(lambda: not node.node.connections)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            client = RawClient(node.address)
            if number % 4 == 1:
                client.send(a_fetch(max_wait_ms=30_000), 12)
            elif number % 4 == 2:
                client.socket.sendall(b"\0\0\1\0\0")
            elif number % 4 == 3:
                client.send(MetadataRequest(topics=None), 12)
            if number % 2:
                client.reset()
            else:
                client.close()
        node.until(lambda: not node.node.connections)
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # background work may have a file open
        assert node.node._by_host == {}
        assert node.node.budget.total == 0
        assert not node.node.broker.partition("orders", 0).waiting_fetches  # type: ignore[union-attr]


# The end


def test_a_stop_answers_those_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "ANSWERS_S", 300.0)  # longer than a test may take
    with RunningNode(tmp_path) as node:
        node.create_topic()
        with RawClient(node.address) as parked, RawClient(node.address) as client:
            parked.send(a_fetch(max_wait_ms=60_000), 12)
            node.until(lambda: node.node.broker.partition("orders", 0).waiting_fetches)  # type: ignore[union-attr]
            client.send(a_produce(b"last words"), 12)
            node.stop()
            parked.receive()
            assert parked.is_closed()
    assert (tmp_path / CLEAN).exists()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_under_load_takes_no_longer(tmp_path: Path, loop: str) -> None:
    """Clients that ask again as soon as they are answered, and one that does not read its answer."""
    patience = {"tailrace.write.timeout.ms": "300000"}  # longer than a test may take
    with RunningNode(tmp_path, patience, loop=LOOPS[loop]) as node:
        node.create_topic()
        with RawClient(node.address) as first:
            for _ in range(10):
                first.produce(b"x" * 1_000_000)
        acknowledged: list[int] = []
        threads = [threading.Thread(target=keep_producing, args=(node.address, acknowledged)) for _ in range(2)]
        threads += [threading.Thread(target=keep_fetching, args=(node.address,)) for _ in range(3)]
        with RawClient(node.address, receive_buffer=4096) as deaf:
            deaf.send(a_fetch(max_bytes=50 << 20), 12)
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            node.stop()
        for thread in threads:
            thread.join()
    assert (tmp_path / CLEAN).exists()
    with RunningNode(tmp_path) as node, RawClient(node.address) as client:
        assert acknowledged
        end = node.on_loop(lambda: node.node.broker.partition("orders", 0).end_offset)  # type: ignore[union-attr]
        assert end > max(acknowledged)
        assert client.values(offset=max(acknowledged))


def keep_producing(address: tuple[str, int], acknowledged: list[int]) -> None:
    with RawClient(address) as client:
        try:
            while True:
                acknowledged.append(client.produce(b"more").base_offset)
        except (ConnectionError, TimeoutError):
            pass


def keep_fetching(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        try:
            while True:
                client.ask(a_fetch(max_wait_ms=100, min_bytes=1 << 30), 12)
        except (ConnectionError, TimeoutError):
            pass


def test_a_heartbeat_that_fails_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []

    def fail(now_ms: int, steady_ms: int) -> None:
        beats.append(now_ms)
        raise ValueError("nobody foresaw this")

    with RunningNode(tmp_path) as node:
        node.on_loop(lambda: monkeypatch.setattr(node.node.broker, "tick", fail))
        node.until(lambda: len(beats) >= 2)
        node.on_loop(monkeypatch.undo)


def test_a_metadata_log_that_cannot_be_flushed_is_the_end(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    node = RunningNode(tmp_path, files=files)
    with node, RawClient(node.address) as client:
        files.fail("sync", errno.EIO, name=".log", forever=True)
        client.send(MetadataRequest(topics=[wanted("new")]), 12)
        node.until(lambda: node.node.failed.done())
        assert client.has_nothing(), "nobody may be told of a topic that a power cut takes back"
        files.heal()
    assert not (tmp_path / CLEAN).exists()


def wanted(name: str) -> Any:
    from tailrace.protocol.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


def test_loops(tmp_path: Path) -> None:
    names: dict[str, Callable[[], Any]] = dict(LOOPS)
    for name, factory in names.items():
        loop = factory()
        assert name in type(loop).__module__
        loop.close()


# Configs of sockets, and what is shown of places


def test_a_request_that_is_larger_than_it_may_be_closes_the_connection(tmp_path: Path) -> None:
    with RunningNode(tmp_path, {"socket.request.max.bytes": "1000"}) as node:
        node.create_topic()
        with RawClient(node.address) as client:
            client.produce(bytes(500))
            client.send(a_produce(bytes(1000)), 12)
            assert client.is_closed()


def test_buffers_of_sockets_are_as_they_are_set(tmp_path: Path) -> None:
    sizes = {"socket.send.buffer.bytes": "50000", "socket.receive.buffer.bytes": "40000"}
    the_systems_own = {"socket.send.buffer.bytes": "-1"}

    def buffers(configs: dict[str, str], directory: Path) -> tuple[int, int]:
        with RunningNode(directory, configs) as node, RawClient(node.address) as client:
            client.ask(ApiVersionsRequest(), 3)
            (connection,) = node.node.connections
            options = (socket.SO_SNDBUF, socket.SO_RCVBUF)
            send, receive = (connection._socket.getsockopt(socket.SOL_SOCKET, option) for option in options)
            return send, receive

    assert buffers(sizes, tmp_path / "set") == (100_000, 80_000), "Linux doubles what it is told"
    assert buffers({}, tmp_path / "not")[0] == 2 * 212_992
    assert buffers(the_systems_own, tmp_path / "own")[0] not in (100_000, 204_800)
    assert buffers({}, tmp_path / "receiving")[1] != 80_000


def test_as_many_may_wait_to_be_accepted_as_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    class Socket(socket.socket):
        def listen(self, backlog: int = 0) -> None:
            told.append(backlog)
            super().listen(backlog)

    monkeypatch.setattr(listener_module.socket, "socket", Socket)
    with RunningNode(tmp_path, {"socket.listen.backlog.size": "7"}):
        assert 7 in told


def test_where_it_listens_and_keeps_its_logs_is_shown_and_what_has_no_effect_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listen = [Listen("127.0.0.1", 0), Listen("127.0.0.1", 0, Endpoint("kafka.example.org", 7))]
    with RunningNode(tmp_path, {"num.io.threads": "8", "broker.id": "5"}, listen=listen) as node:
        configs = node.node.configs
        ports = [listener.port for listener in node.node.listeners]
        assert configs.text("listeners") == ",".join(f"PLAINTEXT://127.0.0.1:{port}" for port in ports)
        assert configs.text("advertised.listeners") == "PLAINTEXT://kafka.example.org:7"
        assert {configs.text(name) for name in ("log.dir", "log.dirs")} == {str(tmp_path)}
        assert {configs.text(name) for name in ("node.id", "broker.id")} == {"5"}
    assert "num.io.threads has no effect: one loop" in caplog.text
