"""The gateway as a child process of the broker: on the broker's port, and supervised as the monitor is."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import child_of, is_gone, new_child
from waits import until

from tailrace.testing.broker_process import BrokerProcess, free_port

GATEWAY = "tailrace.gateway"

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="finds child processes in /proc")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", http=True, metrics=f"127.0.0.1:{free_port()}") as process:
        yield process


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        text: str = response.read().decode()
    return text


def test_the_first_client_starts_it_and_it_is_ready(broker: BrokerProcess) -> None:
    assert get(f"{broker.http_url}/readyz") == "ready\n"
    assert child_of(broker, "tailrace.monitor") is None


def test_it_starts_without_a_client_and_goes_with_the_broker(broker: BrokerProcess) -> None:
    child = new_child(broker, GATEWAY)
    assert broker.stop() == 0
    assert is_gone(child)


def test_it_is_gone_when_the_broker_was_killed_and_the_port_is_free(broker: BrokerProcess) -> None:
    child = new_child(broker, GATEWAY)
    broker.kill()
    until(lambda: is_gone(child), 20)
    broker.start()
    assert get(f"{broker.http_url}/readyz") == "ready\n"


def test_a_killed_gateway_comes_back_on_the_same_port_and_clients_wait_for_it(broker: BrokerProcess) -> None:
    assert get(f"{broker.http_url}/healthz") == "ok\n"
    first = new_child(broker, GATEWAY)
    os.kill(first, 9)
    until(lambda: is_gone(first), 20)
    assert get(f"{broker.http_url}/healthz") == "ok\n"
    assert new_child(broker, GATEWAY) != first
    assert "child process gateway ended: signal 9; starting it again in 1 s" in broker.said


def test_its_metrics_are_on_the_page_of_the_broker(broker: BrokerProcess) -> None:
    get(f"{broker.http_url}/healthz")
    page = f"http://{broker.metrics}/metrics"
    until(lambda: "tailrace_http_connections " in get(page), 30)
    lines = get(page).splitlines()
    assert 'tailrace_child_starts_total{child="gateway"} 1' in lines
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(set(types)) == len(types)
