"""`tailrace monitor`: by itself, beside a broker of ours and Apache Kafka."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import COMMAND, Run
from cli.lag.conftest import bootstrap, commit, produce
from waits import until

from tailrace.testing.broker_process import free_port

__all__ = ["bootstrap", "commit", "produce"]

Commit = Callable[[str, str, int], None]


@contextmanager
def monitor(log: Path, environment: dict[str, str], *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen([*COMMAND, "monitor", *options], stdout=output, stderr=output, env=environment)
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
            text: str = response.read().decode()
    except OSError:
        return ""
    return text


def test_it_serves_lag_as_metrics_and_publishes_it(
    run: Run, environment: dict[str, str], tmp_path: Path, ten: str, unused: str, commit: Commit
) -> None:
    commit(unused, ten, 3)
    port = free_port()
    config = tmp_path / "monitor.toml"
    config.write_text("[tailrace.monitor]\ninterval.ms = 1000\n[tailrace.alert]\ncommand = '[\"/bin/true\"]'\n")
    options = ("--metrics", f"127.0.0.1:{port}", "--config", str(config))
    with monitor(tmp_path / "log", environment, *options):
        row = f'{{group="{unused}",topic="{ten}",partition="0"}}'
        until(lambda: f"tailrace_group_lag_records{row} 7\n" in page(port), 40)
        text = page(port)
        assert re.search(rf'kafka_consumergroup_group_lag{{cluster_name="[^"]+",group="{unused}",', text)
        report = json.loads(run("lag", unused, "--json")[0])
        assert report["rates"] == "monitor"
        assert [one["lag_records"] for one in report["groups"]] == [7]
        assert "command: delivered" in run("alert", "test", "--to", "command")[0]


def test_once_prints_lag_and_broken_rules(run: Run, ten: str, unused: str, commit: Commit) -> None:
    commit(unused, ten, 3)
    found = json.loads(run("monitor", "--once", "--json")[0])
    assert [one["lag_records"] for one in found["groups"] if one["group"] == unused] == [7]
    assert found["source"] in ("tailrace", "kafka")
    assert {"alerts", "at"} <= found.keys()
    assert "partitions of groups" in run("monitor", "--once")[0]


@pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")
def test_mistakes_are_usage_errors(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.properties"
    bad.write_text("tailrace.alert.lag.seconds=soon\n")
    assert "tailrace.alert.lag.seconds cannot be 'soon'" in run("monitor", "--config", str(bad), code=2)[1]
    run("monitor", "--config", str(tmp_path / "missing"), code=2)
    run("monitor", "--json", code=2)
    run("monitor", "--metrics", "here", code=2)
    run("monitor", "--once", "-b", "127.0.0.1:1", code=3)
