"""The broker's child processes, as real processes: they come late, come back, and go with the broker."""

import json
import os
import re
import stat
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import child_of, is_gone, new_child
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from waits import until

from tailrace.server.children.child import Child
from tailrace.server.net.private import USER
from tailrace.testing.broker_process import BrokerProcess, free_port

MONITOR = "tailrace.monitor"

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="finds child processes in /proc")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", monitor=True, metrics=f"127.0.0.1:{free_port()}") as process:
        yield process


def access(broker: BrokerProcess) -> dict[str, str]:
    path = broker.data / "internal.json"
    until(path.exists, 30)
    found: dict[str, str] = json.loads(path.read_text())
    return found


def page(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"http://{broker.metrics}/metrics", timeout=20) as response:
        text: str = response.read().decode()
    return text


def test_the_child_is_gone_when_the_broker_was_killed(broker: BrokerProcess) -> None:
    child = new_child(broker, MONITOR)
    broker.kill()
    until(lambda: is_gone(child), 20)


def test_the_child_stops_with_the_broker_and_the_token_goes(broker: BrokerProcess) -> None:
    access(broker)
    child = new_child(broker, MONITOR)
    assert broker.stop() == 0
    assert is_gone(child)
    assert not (broker.data / "internal.json").exists()


def test_a_killed_child_comes_back_after_pauses_that_grow(broker: BrokerProcess) -> None:
    first = new_child(broker, MONITOR)
    os.kill(first, 9)
    second = new_child(broker, MONITOR, first)
    os.kill(second, 9)
    new_child(broker, MONITOR, second)
    pauses = re.findall(r"child process monitor ended: signal 9; starting it again in (\d+) s", broker.said)
    assert pauses == ["1", "2"]
    assert 'tailrace_child_starts_total{child="monitor"} 3' in page(broker)


def test_the_token_opens_the_private_listener_and_is_nowhere_to_be_seen(broker: BrokerProcess) -> None:
    found = access(broker)
    assert stat.S_IMODE((broker.data / "internal.json").stat().st_mode) == 0o600
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{found['port']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": found["token"],
        }
    )
    assert [one.port for one in admin.list_topics(timeout=20).brokers.values()] == [found["port"]]
    token = found["token"].encode()
    for pid in (broker.pid, new_child(broker, MONITOR)):
        assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token not in Path(f"/proc/{pid}/environ").read_bytes()
    assert found["token"] not in broker.said


def test_the_token_is_new_at_each_start(broker: BrokerProcess) -> None:
    before = access(broker)
    broker.kill()
    broker.start()
    until(lambda: access(broker) != before, 30)
    assert access(broker)["token"] != before["token"]


def test_metrics_of_the_child_are_on_the_page_of_the_broker(broker: BrokerProcess) -> None:
    until(lambda: "tailrace_monitor_updated_timestamp_seconds" in page(broker), 30)
    lines = page(broker).splitlines()
    updated = next(line for line in lines if line.startswith("tailrace_monitor_updated_timestamp_seconds "))
    assert abs(float(updated.split()[1]) - time.time()) < 3600
    assert len({line for line in lines if line.startswith("# TYPE")}) == sum(one.startswith("# TYPE") for one in lines)


@pytest.mark.parametrize("how", [{}, {"tailrace.monitor.enable": "false"}])
def test_a_broker_without_a_monitor_has_no_child(tmp_path: Path, how: dict[str, str]) -> None:
    with BrokerProcess(tmp_path / "data", configs=how, monitor=bool(how)) as broker:
        time.sleep(4)  # a child would be there after 2 s
        assert child_of(broker, MONITOR) is None
        assert not (broker.data / "internal.json").exists()


@given(
    st.lists(st.text(alphabet="ab\n# EOF", max_size=20).filter(lambda text: "# EOF" not in text), max_size=5), st.data()
)
def test_pages_are_whole_however_they_arrive(pages: list[str], data: st.DataObject) -> None:
    child = Child(None, None, "monitor", "tailrace.monitor", b"")  # type: ignore[arg-type]
    stream = "".join(f"{one}\n# EOF\n" for one in pages).encode()
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        child._received(stream[:count])
        stream = stream[count:]
    assert child.page == (f"{pages[-1]}\n".encode() if pages else b"")
