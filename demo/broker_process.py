"""`tailrace serve`, as a process that can be killed and started again: same data, same port."""

import secrets
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"


class BrokerEnded(Exception):
    """The process is gone, and nobody had ended it. The message is what it said last."""


class BrokerProcess:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.started_at = 0.0
        self.ready_at: float | None = None
        self._process: subprocess.Popen[str] | None = None
        self._errors = directory / "serve.log"

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def command(self) -> str:
        return f"tailrace serve --data data --listen {self.bootstrap} --metrics off"

    @property
    def is_ready(self) -> bool:
        """Whether it serves. Raises BrokerEnded where it never will."""
        if self.ready_at is None and self._process is not None and self._process.poll() is not None:
            raise BrokerEnded(f"{self.command}\n{self._errors.read_text()[-2000:]}")
        return self.ready_at is not None

    @property
    def start_seconds(self) -> float:
        """From the start of the process until it served."""
        return (self.ready_at or self.started_at) - self.started_at

    def start(self) -> None:
        """Returns at once; `is_ready` tells when it serves."""
        self.ready_at = None
        self.started_at = time.perf_counter()
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.command.split()],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith("listening on"):
                    self.ready_at = time.perf_counter()

    def kill(self) -> None:
        """kill -9: nothing is finished, nothing is said."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and what the process ended with."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=20)


def free_port() -> int:
    """Below those that outgoing connections are given: a client that retries there could be connected to itself."""
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
