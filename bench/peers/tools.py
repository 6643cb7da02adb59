"""The foreign clients that load a broker, each as its own process: Kafka's own tools, kcat, and confluent-kafka.

Each function does its work once and returns what the tool says of it; reading what a tool printed is pure.
"""

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness.broker_process import BrokerProcess
from bench.peers.kafka import java

GB = 1e9
_TIMEOUT = 600
_PACKAGE = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class Done:
    """What a client has moved, and what that cost the broker."""

    messages_per_second: float
    broker_cpu_per_gb: float
    kernel_cpu_per_gb: float = 0.0  # of its own threads, where that is looked at


@dataclass(frozen=True, slots=True)
class Produced:
    """The last line of ProducerPerformance. Latencies are milliseconds, whole ones."""

    messages_per_second: float
    p50: float
    p99: float
    p99_9: float


_PRODUCED = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec.*?"
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p99_9>\d+) ms 99\.9th\.",
    re.MULTILINE,
)


def read_produced(printed: str) -> Produced:
    lines = list(_PRODUCED.finditer(printed))
    if not lines:
        raise ValueError(f"ProducerPerformance printed no summary: {printed[-2000:]}")
    found = lines[-1]
    return Produced(float(found["rate"]), float(found["p50"]), float(found["p99"]), float(found["p99_9"]))


def read_consumed(printed: str) -> float:
    """Messages per second of ConsumerPerformance, without the time in which the group came together."""
    lines = [line.split(", ") for line in printed.splitlines()]
    at = next((at for at, line in enumerate(lines) if "fetch.nMsg.sec" in line), len(lines))
    match lines[at : at + 2]:
        case [names, values] if len(names) == len(values):
            return float(values[names.index("fetch.nMsg.sec")])
    raise ValueError(f"ConsumerPerformance printed no summary: {printed[-2000:]}")


def read_mean_latency(printed: str) -> float:
    """Of EndToEndLatency, in milliseconds. Its percentiles are whole ones, and most of them 0."""
    found = re.search(r"Avg latency: ([\d.]+) ms", printed)
    if found is None:
        raise ValueError(f"EndToEndLatency printed no average: {printed[-2000:]}")
    return float(found[1])


def produce_command(
    broker: BrokerProcess, topic: str, size: int, count: int, per_second: int = -1, **properties: str
) -> list[str]:
    options = [f"--topic={topic}", f"--num-records={count}", f"--record-size={size}", f"--throughput={per_second}"]
    sets = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    command = [*options, f"--bootstrap-server={broker.bootstrap}", *(["--command-property", *sets] if sets else [])]
    return java(f"{_PACKAGE}.ProducerPerformance", *command)


def java_produce(broker: BrokerProcess, topic: str, size: int, count: int, compression: str, acks: str = "all") -> Done:
    command = produce_command(broker, topic, size, count, compression_type=compression, acks=acks)
    before = broker.cpu_seconds()
    produced = read_produced(printed_by(command))
    return Done(produced.messages_per_second, _per_gb(broker, before, size * count))


def java_consume(broker: BrokerProcess, topic: str, size: int, count: int) -> Done:
    options = [f"--bootstrap-server={broker.bootstrap}", f"--topic={topic}", f"--num-records={count}"]
    before = broker.cpu_seconds()
    rate = read_consumed(printed_by(java(f"{_PACKAGE}.ConsumerPerformance", *options)))
    return Done(rate, _per_gb(broker, before, size * count))


def java_end_to_end(broker: BrokerProcess, topic: str, number: int) -> float:
    """Milliseconds, on average: one record of 100 bytes at a time, sent with `acks=all` and read back."""
    options = {"bootstrap-server": broker.bootstrap, "topic": topic, "num-records": number}
    options |= {"producer-acks": "all", "record-size": 100}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]  # with = it knows none
    return read_mean_latency(printed_by(java(f"{_PACKAGE}.EndToEndLatency", *words)))


def c_produce(broker: BrokerProcess, topic: str, size: int, count: int, compression: str, acks: str = "all") -> Done:
    load = broker.load("produce", topic, size, _TIMEOUT, acks, count=count, compression=compression)
    return Done(load.messages / load.seconds, load.broker_cpu / (load.messages * size / GB))


def c_consume(broker: BrokerProcess, topic: str, size: int, count: int) -> Done:
    load = broker.load("consume", topic, size, 0)
    return Done(load.messages / load.seconds, load.broker_cpu / (load.messages * size / GB))


def kcat_missing() -> str | None:
    return None if shutil.which("kcat") else "no kcat on the PATH; on Debian or Ubuntu: apt-get install kcat"


def kcat_produce(broker: BrokerProcess, topic: str, size: int, count: int, compression: str, lines: Path) -> Done:
    """`lines` is a file with `count` messages, one a line. The time is that of the process, its start included."""
    command = ["kcat", "-P", "-b", broker.bootstrap, "-t", topic, "-z", compression, "-X", "linger.ms=5", "-l"]
    before, start = broker.cpu_seconds(), time.perf_counter()
    printed_by([*command, str(lines)])
    return Done(count / (time.perf_counter() - start), _per_gb(broker, before, size * count))


def kcat_consume(broker: BrokerProcess, topic: str, size: int, count: int, readers: int = 1) -> Done:
    """All that is there, by so many readers at once; the rate is that of all of them together."""
    before, start = broker.cpu_seconds(), time.perf_counter()
    processes = [subprocess.Popen(_kcat_read(broker, topic), stdout=subprocess.DEVNULL) for _ in range(readers)]
    for process in processes:
        if process.wait(_TIMEOUT):
            raise RuntimeError(f"kcat ended with {process.returncode}")
    moved = readers * count
    return Done(moved / (time.perf_counter() - start), _per_gb(broker, before, size * moved))


def _kcat_read(broker: BrokerProcess, topic: str) -> list[str]:
    """Set so that it neither waits at the end, which an empty Fetch tells it, nor pauses before."""
    settings = ["-X", "fetch.wait.max.ms=10", "-X", "queued.min.messages=1000000"]
    return ["kcat", "-C", "-b", broker.bootstrap, "-t", topic, "-o", "0", "-e", "-q", *settings]


def printed_by(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def _per_gb(broker: BrokerProcess, before: float, size: int) -> float:
    return (broker.cpu_seconds() - before) / (size / GB)
