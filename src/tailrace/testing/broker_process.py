"""The broker as a real process: `tailrace serve`, started, stopped, killed and started again.

    with BrokerProcess() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        ...
        broker.kill()
        broker.start()

For tests of what a client does when a broker dies, and of a broker's memory and CPU time. Where neither matters,
`tailrace.testing.Broker` starts faster. The data directory and the port stay the same from one start to the next.

Subclasses may run another command or another broker: override `command`, `is_ready` and `process_options`.
"""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
_LISTENING = re.compile(r"listening on (\S+):(\d+)")
_READY = "Connect any Kafka client"


class BrokerNotReady(AssertionError):
    """The broker ended, or took too long, before it served clients. The message has what it printed."""


class BrokerProcess:
    start_s = 60.0  # until it must be ready
    stop_s = 60.0  # until it must have ended after a signal
    poll_s = 0.02  # between two looks at what it printed

    def __init__(
        self,
        data: str | Path | None = None,
        *options: str,
        configs: Mapping[str, str] | None = None,
        listen: str = f"{HOST}:0",
        metrics: str = "off",
        output: str | Path | None = None,
        monitor: bool = False,
        http: bool = False,
    ) -> None:
        """Does not start the process yet.

        `data` is the data directory: a temporary one, removed by `close`, unless given. `options` are further ones of
        `tailrace serve`, and `configs` are broker configs by Kafka's names. With port 0, the first start picks a free
        port. `output` is the file that gets what the process prints: beside the data directory unless given. With
        `monitor`, the broker starts its monitor; with `http`, its gateway, at `http_url`.
        """
        self._temporary = tempfile.mkdtemp(prefix="tailrace-") if data is None else None
        self.data = Path(self._temporary or "", "data") if data is None else Path(data)
        self.output = Path(output) if output is not None else self.data.with_name(f"{self.data.name}.out")
        self.options = options
        self.configs = dict(configs or {})
        self.metrics = metrics
        self.monitor = monitor
        self.http_port = free_port() if http else None
        self.host, self.port = _split(listen)
        self._process: subprocess.Popen[bytes] | None = None
        self._printed_before = 0

    # Where it is

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the port is 0 until the first start has picked one."""
        return self.host, self.port

    @property
    def listen(self) -> str:
        """The value of `--listen`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bootstrap(self) -> str:
        """The value of a client's `bootstrap.servers`."""
        return self.listen

    @property
    def http_url(self) -> str:
        """Where the gateway is. A request waits there until the gateway has started."""
        assert self.http_port, "the broker was not asked for a gateway"
        return f"http://{HOST}:{self.http_port}"

    # What runs

    def command(self) -> list[str]:
        """The command line, made anew for each start."""
        serve = [sys.executable, "-m", "tailrace", "serve", "--data", str(self.data), "--listen", self.listen]
        sets = [word for name, value in self.configs.items() for word in ("--set", f"{name}={value}")]
        monitor = [] if self.monitor else ["--no-monitor"]
        http = f"{HOST}:{self.http_port}" if self.http_port else "off"
        return [*serve, "--metrics", self.metrics, "--http", http, *monitor, *sets, *self.options]

    def process_options(self) -> dict[str, Any]:
        """Further arguments for `subprocess.Popen`, such as `env` or `cwd`."""
        return {}

    def is_ready(self) -> bool:
        """Whether the running process serves clients."""
        return _READY in self.said

    # Start and end

    def start(self, *, wait: bool = True) -> Self:
        """Starts the process and, unless told otherwise, waits until it serves clients. Raises BrokerNotReady."""
        assert not self.is_running, "the broker is running"
        self._printed_before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **self.process_options(),
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Kills a process that is not ready in time, and raises BrokerNotReady."""
        try:
            deadline = time.monotonic() + self.start_s
            while not self.is_ready():
                if (code := self.exit_code) is not None:
                    raise BrokerNotReady(f"the broker ended with {code}: {self.said}")
                if time.monotonic() > deadline:
                    raise BrokerNotReady(f"the broker is not ready after {self.start_s:g} s: {self.said}")
                time.sleep(self.poll_s)
        except BaseException:
            self.kill()
            raise
        if not self.port and (found := _LISTENING.search(self.said)):
            self.host, self.port = _split(f"{found[1]}:{found[2]}")

    def stop(self) -> int:
        """Stops it by SIGTERM, where it has not ended yet, and returns its exit code: 0 after a clean stop."""
        return self.end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it by SIGKILL: nothing is flushed or closed."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal and returns the exit code. Raises subprocess.TimeoutExpired for a process that does not end;
        it is killed then.
        """
        self.process.send_signal(number)  # which does nothing to a process that has ended
        try:
            return self.process.wait(self.stop_s)
        finally:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it where it is running, and removes a temporary data directory."""
        try:
            if self.is_running:
                self.stop()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What can be observed

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process of the last start."""
        assert self._process is not None, "the broker was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it is running."""
        return self.process.poll()

    @property
    def said(self) -> str:
        """What the process printed and logged since the last start. `output` has that of all starts."""
        return self.output.read_bytes()[self._printed_before :].decode(errors="replace")

    def cpu_s(self) -> float:
        """CPU time of all threads, without child processes. Linux only."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Resident memory, without child processes. Linux only."""
        return self.status_bytes("VmRSS")

    def status_bytes(self, name: str) -> int:
        """A size in `/proc/PID/status`, such as VmRSS or VmHWM. Linux only."""
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found, f"no {name} in /proc/{self.pid}/status"
        return int(found[1]) * 1024


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def free_port() -> int:
    """A free port of 127.0.0.1, below those that the kernel gives to outgoing connections.

    A client that retries a port of that kind while its broker is down can be connected to itself. The random number is
    not of the `random` module, whose seed may be the same in several test processes.
    """
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
