"""A broker as a process of its own, its CPU time and memory as the kernel counts them, and a raw connection to it."""

import ctypes
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from bench import trees
from tailrace.protocol.frame import decode_response, encode_request

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Load:
    """What a client has done, and what it cost both sides."""

    messages: int
    seconds: float
    client_cpu: float
    broker_cpu: float


class BrokerProcess:
    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self.process = process
        self.host, self.port = host, port

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        return trees.cpu_seconds(self.process.pid)

    def memory_bytes(self) -> int:
        return trees.memory_bytes(self.process.pid)

    def load(self, what: str, topic: str, size: int, seconds: float, acks: str = "1", **options: object) -> Load:
        """By `bench.load`, which see; `options` are further ones of its own."""
        before = self.cpu_seconds()
        command = [sys.executable, "-m", "bench.load", what, self.bootstrap, topic, str(size), str(seconds), acks]
        more = [f"--{name}={value}" for name, value in options.items()]
        done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        result = json.loads(done.stdout)
        return Load(result["messages"], result["seconds"], result["cpu"], self.cpu_seconds() - before)


@contextmanager
def broker_process(data: str, *options: str, metrics: str = "off", **variables: str) -> Iterator[BrokerProcess]:
    """A broker that serves, until the block ends; `variables` are further ones of its environment."""
    process = start_broker(data, 0, *options, metrics=metrics, **variables)
    try:
        yield wait_until_ready(process)
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def start_broker(
    data: str, port: int = 0, *options: str, metrics: str = "off", **variables: str
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tailrace", "serve", "--data", data, "--listen", f"127.0.0.1:{port}"]
    return subprocess.Popen(
        [*command, "--metrics", metrics, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment() | variables,
        preexec_fn=die_with_parent,
    )


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Called in a new process: it does not outlive us, however we end. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """One that nobody is given by chance, as those for outgoing connections are."""
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def environment() -> dict[str, str]:
    """As an installed package runs: with its compiled modules at hand."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def wait_until_ready(process: subprocess.Popen[str]) -> BrokerProcess:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), f"the broker does not start: {line!r}"
    host, _, port = line.split()[-1].rpartition(":")
    return BrokerProcess(process, host, int(port))


_LENGTH = struct.Struct(">i")
_ROOM = 64 << 10  # more than most answers
_TIMEOUT = struct.pack("@ll", 60, 0)  # as the kernel's timeval


class RawConnection:
    """One request at a time, with no client library in between, and as little of Python as can be: a small answer takes
    one system call, as the kernel minds the time, too.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
        self._behind = b""  # the last answer, of what was received

    def ask(self, request: object, response: type[Response], version: int) -> Response:
        return decode_response(response, version, self.exchange(encode_request(request, version, 0, "bench")))[1]

    def exchange(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The next answer without its length."""
        data = self._behind or self._received()
        while len(data) < _LENGTH.size:
            data += self._received()
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        if len(data) < end:
            data = self._rest_of(data, end)
        self._behind = data[end:]
        return data[_LENGTH.size : end]

    def _received(self) -> bytes:
        data = self._socket.recv(_ROOM)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        return data

    def _rest_of(self, data: bytes, end: int) -> bytes:
        """A large answer is received where it stays."""
        whole = bytearray(end)
        whole[: len(data)] = data
        view, filled = memoryview(whole), len(data)
        while filled < end:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("the broker has closed the connection")
            filled += count
        return bytes(view)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
