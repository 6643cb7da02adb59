"""The broker as a process: what users of `tailrace.testing.BrokerProcess` rely on."""

import socket
import sys
from pathlib import Path

import pytest

from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.testing import BrokerNotReady, BrokerProcess, RawClient
from tailrace.testing.raw_client import FrameConnection


def partitions_of(broker: BrokerProcess, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    with RawClient(broker.address) as client:
        return len(client.ask(request, 8).topics[0].partitions)


def test_a_killed_broker_is_started_again_with_its_data_and_port(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", configs={"num.partitions": "3"}) as broker:
        before = broker.bootstrap
        assert partitions_of(broker, "orders") == 3
        broker.kill()
        assert not broker.is_running
        assert broker.exit_code == -9
        broker.configs["num.partitions"] = "5"
        broker.start()
        assert broker.bootstrap == before
        assert partitions_of(broker, "orders") == 3
        assert broker.said.count("listening on") == 1
        assert broker.output.read_text().count("listening on") == 2
        assert broker.stop() == 0


def test_a_temporary_data_directory_is_removed_when_the_broker_is_closed() -> None:
    with BrokerProcess() as broker:
        assert broker.data.is_dir()
        assert broker.rss_bytes() > 1 << 20
        assert broker.cpu_s() > 0
    assert broker.exit_code == 0
    assert not broker.data.parent.exists()


def test_a_broker_that_does_not_start_raises_what_it_printed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", "--set", "no.such.config=1")
    with pytest.raises(BrokerNotReady, match=r"no\.such\.config"):
        broker.start()
    assert not broker.is_running


def test_a_broker_that_is_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    class Silent(BrokerProcess):
        start_s = 0.1

        def command(self) -> list[str]:
            return [sys.executable, "-c", "import time; time.sleep(60)"]

    broker = Silent(tmp_path / "data")
    with pytest.raises(BrokerNotReady, match=r"not ready after 0\.1 s"):
        broker.start()
    assert broker.exit_code == -9


def test_a_connection_that_ends_within_a_frame_raises() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, FrameConnection(server.getsockname()) as connection:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"\0\0\0\3abc\0\0\0\5de")
        assert connection.receive_frame() == b"abc"
        with pytest.raises(ConnectionError):
            connection.receive_frame()
