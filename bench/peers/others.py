"""NATS JetStream, Redis Streams and RabbitMQ, each driven by its own client: 100-byte messages, kept on disk.

What "acknowledged" means differs, and the rows say how: ours means synced. All clients are Python's (asyncio), with a
thousand messages under way, ours and Kafka's is aiokafka: so languages are not what is compared. They are often the
slower part, and what a server itself takes is its CPU time. All are up at once, and take turns.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harness import process_tree
from bench.harness.measure import Figure, Sample
from bench.peers import kafka, tools
from bench.peers.kafka import end, start_bound
from bench.peers.session import Peer, Session, against_kafka
from bench.peers.tools import GB, Done
from tailrace.testing.broker_process import HOST, free_port

SIZE = 100
NAME = "bench"  # of the stream, as in `others_client`
_CLIENT = Path(__file__).parents[1] / "programs" / "others_client.py"
_START_S = 60
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # not the wrapper around it, which wants another user


def home() -> Path:
    """Where scripts/fetch-peers puts what it gets."""
    return Path(os.environ.get("TAILRACE_PEERS") or Path.home() / ".cache/tailrace/peers")


@dataclass(frozen=True, slots=True)
class Other:
    """A server in one of its settings."""

    client: str
    name: str
    durability: str
    setting: str = ""

    @property
    def key(self) -> str:
        return f"{self.client}-{self.setting}" if self.setting else self.client


OURS = Other("kafka", "tailrace", "synced before it is acknowledged")
KAFKA = Other("kafka", "Kafka", "in the page cache when acknowledged")
OTHERS = (
    Other("nats", "NATS JetStream", "in the page cache when acknowledged, synced within 2 minutes", "2m"),
    Other("nats", "NATS JetStream, sync always", "synced before it is acknowledged", "always"),
    Other("redis", "Redis Streams, everysec", "in the page cache, as a rule, and synced each second", "everysec"),
    Other("redis", "Redis Streams, always", "synced before it is acknowledged", "always"),
    Other("rabbitmq", "RabbitMQ, durable, confirms", "written and synced in batches before it is confirmed"),
)


@dataclass(frozen=True, slots=True)
class Running:
    other: Other
    process: "subprocess.Popen[bytes]"
    port: int

    def run(self, what: str, count: int) -> Done:
        before = process_tree.cpu_seconds(self.process.pid)
        python = home() / "venv/bin/python"
        command = [str(python), str(_CLIENT), self.other.client, what, str(self.port), str(count), str(SIZE)]
        done = json.loads(tools.printed_by(command))
        cpu = process_tree.cpu_seconds(self.process.pid) - before
        return Done(count / done["seconds"], cpu / (count * SIZE / GB))


def missing(other: Other) -> str | None:
    """Why it cannot be run here; None where it can."""
    if not (home() / "venv/bin/python").exists():
        return f"no clients in {home()}; scripts/fetch-peers gets them"
    program = _program(other)
    return None if shutil.which(program) else f"no {program}; scripts/fetch-peers gets it"


def _program(other: Other) -> str:
    return {"nats": str(home() / "bin/nats-server"), "redis": "redis-server", "rabbitmq": str(_RABBITMQ)}[other.client]


def version(other: Other) -> str:
    if missing(other):
        return "none"
    if other.client == "rabbitmq":  # asking itself would start a virtual machine
        return _RABBITMQ.resolve().parents[1].name.partition("-")[2]
    found = re.search(r"\d+\.\d+\.\d+", tools.printed_by([_program(other), "--version"]))
    return found[0] if found else "unknown"


def others(session: Session) -> list[Figure]:
    count, rounds = session.bench.pick(40_000, 5_000), session.bench.pick(3, 1)
    present = [other for other in OTHERS if missing(other) is None]
    with ExitStack() as stack:
        servers = [stack.enter_context(_broker(session.ours, OURS))]
        if kafka.missing() is None:
            servers.append(stack.enter_context(_broker(session.kafka, KAFKA)))
        servers += [stack.enter_context(running(session, other)) for other in present]
        sides = [partial(_both, one, count) for one in servers]
        ours, *theirs = session.bench.take_turns("other peers", rounds, *sides)
    found = zip(servers[1:], theirs, strict=True)
    figures = [figure for one, side in found for figure in _figures(one.other, ours, side)]
    absent = [(other, reason) for other in OTHERS if (reason := missing(other))]
    return figures + [_absent(other, reason, ours) for other, reason in absent]


Both = tuple[Done, Done]
Server = AbstractContextManager["subprocess.Popen[bytes]"]


def _both(running: Running, count: int) -> Both:
    return running.run("produce", count), running.run("consume", count)


@contextmanager
def _broker(peer: Peer, other: Other) -> Iterator[Running]:
    with peer.topic(NAME):
        yield Running(other, peer.broker.process, peer.broker.port)


def _figures(other: Other, ours: list[Both], theirs: list[Both]) -> list[Figure]:
    figures = []
    for which, what in enumerate(("produce", "consume")):
        name, title = f"other/{other.key}/{what}", f"{what} 100 B, beside {other.name}"
        rates = [[both[which].messages_per_second for both in side] for side in (ours, theirs)]
        costs = [[both[which].broker_cpu_per_gb for both in side] for side in (ours, theirs)]
        note = f"{other.name}: {other.durability}; ours: {OURS.durability}" if not which else ""
        figures += [
            against_kafka(name, title, "messages/s", rates[0], rates[1], baseline=other.name, note=note),
            against_kafka(f"{name}/cpu", f"server CPU, {title}", "s/GB", costs[0], costs[1], baseline=other.name),
        ]
    return figures


def _absent(other: Other, reason: str, ours: list[Both]) -> Figure:
    rates = Sample.of([produced.messages_per_second for produced, _ in ours])
    title = f"produce 100 B, beside {other.name}"
    return Figure(f"other/{other.key}/produce", title, "messages/s", rates, note=f"cannot be had here: {reason}")


@contextmanager
def running(session: Session, other: Other) -> Iterator[Running]:
    session.bench.tell(f"{other.name} starts")
    with session.bench.place.directory() as path:
        directory, port = Path(path), free_port()
        directory.mkdir()
        with {"nats": _nats, "redis": _redis, "rabbitmq": _rabbitmq}[other.client](directory, port, other) as process:
            _wait_for_port(process, port)
            yield Running(other, process, port)


def _nats(directory: Path, port: int, other: Other) -> Server:
    setting = f"store_dir: {directory}/data, sync_interval: {other.setting}"
    configuration = directory / "nats.conf"
    configuration.write_text(f"host: {HOST}\nport: {port}\njetstream {{ {setting} }}\n")
    return _server([str(home() / "bin/nats-server"), "-c", str(configuration)])


def _redis(directory: Path, port: int, other: Other) -> Server:
    options = {"port": port, "bind": HOST, "dir": directory, "save": "", "appendonly": "yes"}
    options["appendfsync"] = other.setting
    return _server(["redis-server", *(str(word) for name, value in options.items() for word in (f"--{name}", value))])


@contextmanager
def _rabbitmq(directory: Path, port: int, other: Other) -> Iterator["subprocess.Popen[bytes]"]:
    """With a port mapper of its own, which Erlang would otherwise start and leave behind."""
    epmd = free_port()
    environment = os.environ | {
        "HOME": str(directory),  # for its cookie
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": HOST,
        "RUNNING_UNDER_SYSTEMD": "1",  # so that it is our child, and no script's
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }
    with _server(["epmd", "-port", str(epmd), "-address", HOST]), _server([str(_RABBITMQ)], environment) as process:
        yield process


@contextmanager
def _server(command: list[str], environment: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    process = start_bound(command, env=environment)
    try:
        yield process
    finally:
        end(process)


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with socket.socket() as probe:
            if not probe.connect_ex((HOST, port)):
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not start: {process.poll()}")
        time.sleep(0.05)
