"""`tailrace doctor`: what it says of real conditions, and that it leaves nothing behind."""

import json
import os
import platform
import pty
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode

from tailrace.cli.doctor import machine as doctor_machine
from tailrace.cli.doctor.broker import broker_checks, health, quantile
from tailrace.cli.doctor.check import Check, State
from tailrace.cli.doctor.disk import disk_checks, mount_of
from tailrace.cli.doctor.machine import is_optimized, machine_checks

MEMORY = Path("/dev/shm")
NOWHERE = ("127.0.0.1", 1)


def is_memory(path: Path) -> bool:
    return path.is_dir() and mount_of(path, Path("/proc/self/mountinfo").read_text())[0] == "tmpfs"


def doctor(*arguments: object, code: int, limits: str = "") -> Any:
    """What it says to programs, in a process that has these limits."""
    command = [sys.executable, "-c", f"import resource; {limits}\nfrom tailrace.cli.main import main; main()"]
    done = subprocess.run([*command, "doctor", *map(str, arguments), "--json"], capture_output=True, text=True)
    assert done.returncode == code, (done.stdout, done.stderr)
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def named(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def somebody(answer: bytes | None) -> Iterator[int]:
    """Listens on a port: says this and hangs up, or says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    connection.recv(100)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


@pytest.mark.skipif(not is_memory(MEMORY), reason="there is no tmpfs at /dev/shm")
def test_memory_few_files_and_no_broker_where_one_was_named(tmp_path: Path) -> None:
    data = MEMORY / f"tailrace-doctor-{os.getpid()}"
    data.mkdir()
    try:
        port = a_free_port()
        low = "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))"
        found = doctor("--data", data, "-b", f"127.0.0.1:{port}", code=1, limits=low)
        assert list(data.iterdir()) == []
    finally:
        data.rmdir()
    assert found["file system"]["state"] == "problem"
    assert found["file system"]["text"].startswith("tmpfs")
    assert found["open files"]["state"] == "warning"
    assert "ulimit -n" in found["open files"]["advice"]
    assert found["broker"]["state"] == "problem"
    assert "tailrace serve" in found["broker"]["advice"]
    assert {"space", "disk speed", "flushes", "kernel", "memory", "clock", "uvloop", "records", "librdkafka"} <= set(
        found
    )


def test_a_disk_is_measured_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    found = named(disk_checks(tmp_path / "not" / "there"))
    assert "is not there yet" in found["directory"].text
    assert "/s written" in found["disk speed"].text
    assert "p99" in found["flushes"].text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "options", "state"),
    [
        ("ext4", "rw,relatime", State.OK),
        ("xfs", "rw,nobarrier", State.PROBLEM),
        ("nfs4", "rw", State.WARNING),
        ("overlay", "rw,lowerdir=/a", State.WARNING),
        ("fuse.sshfs", "rw", State.WARNING),
        ("tmpfs", "rw", State.PROBLEM),
    ],
)
def test_file_systems_that_are_not_for_data_are_named(
    kind: str, options: str, state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = ["21 1 8:1 / / rw - ext4 /dev/a rw", f"22 1 8:2 / {tmp_path} rw - {kind} /dev/b {options}"]
    real = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: "\n".join(lines) if path.name == "mountinfo" else real(path))
    checks = disk_checks(tmp_path)
    next(checks)
    assert next(checks).state == state


def test_a_running_broker_is_asked_and_its_page_is_read(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "data") as node:
        host, port = node.address
        pages = node.pages.address
        assert pages is not None
        found = named(broker_checks(host, port, pages, is_wanted=True))
        directory = next(disk_checks(tmp_path / "data"))
    assert found["broker"].state == State.OK
    assert "round trip" in found["broker"].text
    assert found["health"].state == State.OK
    assert set(found) == {"broker", "health", "loop lag", "flush time"}
    assert directory.text.endswith(f"is in use by process {os.getpid()}")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0\0\4\0\0\0\0\0\0\0\0\0\0"])
def test_whoever_else_has_the_port_is_told_from_a_broker(answer: bytes) -> None:
    with somebody(answer) as port:
        found = named(broker_checks("127.0.0.1", port, NOWHERE, is_wanted=False))
    assert found["broker"].state == State.PROBLEM
    assert f"(process {os.getpid()}, " in found["broker"].text
    assert "--listen" in found["broker"].advice


def test_without_a_broker_the_ports_that_it_would_take_are_looked_at() -> None:
    port = a_free_port()
    found = named(broker_checks("127.0.0.1", port, ("127.0.0.1", a_free_port()), is_wanted=False))
    assert list(found) == ["broker"]
    assert found["broker"].state == State.OK
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = named(broker_checks("127.0.0.1", port, taken.getsockname(), is_wanted=False))
    assert found["port"].state == State.WARNING


PAGE = """
tailrace_logs_offline 0
tailrace_damaged_ranges{topic="orders"} 0
tailrace_disk_is_low 0
tailrace_scrub_faults_total 0
tailrace_compaction_failures_total 0
tailrace_loop_lag_seconds_bucket{le="0.001"} 90
tailrace_loop_lag_seconds_bucket{le="0.5"} 99
tailrace_loop_lag_seconds_bucket{le="+Inf"} 100
tailrace_loop_lag_seconds_count 100
"""


def test_the_figures_of_a_broker_become_words() -> None:
    found = named(health(PAGE))
    assert found["health"].state == State.OK
    assert found["loop lag"].state == State.WARNING
    assert "p50 up to 1.00 ms, p99 up to 500 ms" in found["loop lag"].text
    assert found["flush time"].text == "nothing was measured yet"
    assert quantile(PAGE, "tailrace_loop_lag_seconds", 1) == float("inf")


def on_a_page_with(line: str) -> list[State]:
    name = line.rpartition(" ")[0]
    page = "\n".join(line if old.startswith(name) else old for old in PAGE.splitlines())
    return [check.state for check in health(page) if check.name == "health"]


@pytest.mark.parametrize(
    "line", ["tailrace_logs_offline 2", 'tailrace_damaged_ranges{topic="orders"} 1', "tailrace_disk_is_low 1"]
)
def test_a_disk_that_failed_or_is_full_and_damage_are_problems(line: str) -> None:
    assert on_a_page_with(line) == [State.PROBLEM]


@pytest.mark.parametrize("line", ["tailrace_scrub_faults_total 3", "tailrace_compaction_failures_total 1"])
def test_what_failed_and_may_not_again_is_a_warning(line: str) -> None:
    assert on_a_page_with(line) == [State.OK, State.WARNING]


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_no_line_is_wider_than_it(columns: int) -> None:
    code = (
        "from tailrace.cli.doctor.command import _Shown; from tailrace.cli.doctor.check import *\n"
        "shown = _Shown(False); shown.add(warning('disk speed', 'word ' * 40, 'advice ' * 30)); shown.end()"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment)
    os.close(theirs)
    said = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 20_000).decode())
    os.close(ours)
    assert done.returncode == 0
    lines = said.splitlines()
    assert columns - 20 < max(map(len, lines)) <= columns
    assert lines[0].startswith("warning  disk speed   word")
    assert any(line.startswith(" " * 22 + "→ advice") for line in lines)


@pytest.mark.parametrize(
    ("configured", "optimized"),
    [
        ("'--prefix=/opt/pythons/3.11.7' '--enable-shared'", False),
        ("'--prefix=/usr/local' '--enable-optimizations' '--with-lto'", True),
        ("'--enable-shared' '--prefix=/usr' '--enable-ipv6'", True),
        ("'--prefix=/usr/local'", False),
        ("", False),
    ],
)
def test_an_interpreter_that_was_built_without_optimizations_is_known(configured: str, optimized: bool) -> None:
    assert is_optimized(configured) is optimized


@pytest.mark.parametrize(("configured", "state"), [("", State.WARNING), ("'--enable-optimizations'", State.OK)])
def test_the_interpreter_is_looked_at(configured: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "get_config_var", lambda _: configured)
    found = named(machine_checks())["python"]
    assert found.state is state
    assert platform.python_version() in found.text
