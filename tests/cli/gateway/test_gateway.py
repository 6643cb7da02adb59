"""`tailrace gateway`: by itself, in front of a broker of ours and Apache Kafka."""

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run
from cli.lag.conftest import bootstrap
from waits import until

from tailrace.testing.broker_process import free_port

__all__ = ["bootstrap"]

Start = Callable[..., "subprocess.Popen[bytes]"]


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            code: int = response.status
            return code
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_it_serves_http_until_a_signal(start: Start) -> None:
    port = free_port()
    process = start("gateway", "--listen", f"127.0.0.1:{port}")
    until(lambda: status(f"http://127.0.0.1:{port}/readyz") == 200, 30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert status(f"http://127.0.0.1:{port}/healthz") == 0


@pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")
def test_without_a_broker_it_waits_and_is_not_ready(start: Start) -> None:
    port, nowhere = free_port(), free_port()
    start("gateway", "--listen", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{nowhere}")
    until(lambda: status(f"http://127.0.0.1:{port}/healthz") == 200, 30)
    assert status(f"http://127.0.0.1:{port}/readyz") == 503


@pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")
def test_mistakes_are_explained(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[tailrace.http]\nhost = 'a'\n")
    assert "tailrace.http.host is not a config" in run("gateway", "--config", str(bad), code=2)[1]
    run("gateway", "--config", str(tmp_path / "missing"), code=2)
    run("gateway", "--listen", "here:there", code=2)
    run("gateway", "-X", "no.such=1", "--listen", "127.0.0.1:0", code=2)
    assert "openssl rand" in run("gateway", "--token-file", str(bad), code=2)[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "in use" in run("gateway", "--listen", address, code=5)[1]


@pytest.mark.parametrize("bootstrap", ["tailrace"], indirect=True, scope="session")
def test_beyond_loopback_it_needs_a_token_or_the_insecure_flag(run: Run, start: Start, tmp_path: Path) -> None:
    said = run("gateway", "--listen", "0.0.0.0:0", code=5)[1]
    assert "--token-file" in said
    assert "--insecure" in said
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    options: list[list[Any]] = [["--token-file", token], ["--insecure"]]
    for option in options:
        port = free_port()
        start("gateway", "--listen", f"0.0.0.0:{port}", *option)
        until(lambda port=port: status(f"http://127.0.0.1:{port}/healthz") == 200, 30)  # type: ignore[misc]
