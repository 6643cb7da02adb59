"""Our broker as a process, with the CPU time and memory of its whole process tree."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.harness import process_tree
from tailrace.testing import broker_process as testing
from tailrace.testing.broker_process import HOST


@dataclass(frozen=True, slots=True)
class Load:
    """What a client has done, and what it cost both sides."""

    messages: int
    seconds: float
    client_cpu: float
    broker_cpu: float


class BrokerProcess(testing.BrokerProcess):
    """`variables` are further ones of its environment. It does not outlive this process.

    It has no monitor and no gateway unless asked for one: these start two seconds after the broker, and would count as
    work of the measured path.
    """

    start_s = 120.0
    stop_s = 30.0
    poll_s = 0.001  # what is measured may be the start

    def __init__(
        self,
        data: str,
        *options: str,
        port: int = 0,
        metrics: str = "off",
        monitor: bool = False,
        http: bool = False,
        variables: dict[str, str] | None = None,
    ) -> None:
        super().__init__(data, *options, listen=f"{HOST}:{port}", metrics=metrics, monitor=monitor, http=http)
        self._variables = variables or {}

    def process_options(self) -> dict[str, Any]:
        return {"env": environment() | self._variables, "preexec_fn": die_with_parent}

    def cpu_seconds(self) -> float:
        return process_tree.cpu_seconds(self.pid)

    def memory_bytes(self) -> int:
        return process_tree.memory_bytes(self.pid)

    def load(self, what: str, topic: str, size: int, seconds: float, acks: str = "1", **options: object) -> Load:
        """By `bench.programs.load`, which see; `options` are further ones of its own."""
        before = self.cpu_seconds()
        command = [
            sys.executable,
            "-m",
            "bench.programs.load",
            what,
            self.bootstrap,
            topic,
            str(size),
            str(seconds),
            acks,
        ]
        more = [f"--{name}={value}" for name, value in options.items()]
        done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        result = json.loads(done.stdout)
        return Load(result["messages"], result["seconds"], result["cpu"], self.cpu_seconds() - before)


@contextmanager
def broker_process(
    data: str, *options: str, metrics: str = "off", monitor: bool = False, http: bool = False, **variables: str
) -> Iterator[BrokerProcess]:
    """A broker that serves, until the block ends; `variables` are further ones of its environment."""
    with BrokerProcess(data, *options, metrics=metrics, monitor=monitor, http=http, variables=variables) as broker:
        yield broker


def child_of(broker: BrokerProcess, module: str) -> int:
    """The process id of the broker's child that runs a module, once it runs."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for pid in process_tree.tree(broker.pid)[1:]:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if module.encode() in file.read().split(b"\0"):
                    return pid
        time.sleep(0.1)
    raise RuntimeError(f"the broker has not started {module}")


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Called in a new process: it does not outlive us, however we end. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def environment() -> dict[str, str]:
    """As an installed package runs: with its compiled modules at hand."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
