"""The broker as a process: what it takes of a core while a C client uses one, how soon it acknowledges, how soon it is
there.

The client is the bottleneck where it uses a whole core and the broker much less than one; what the broker uses is the
figure. CPU time is the kernel's count, so neighbours on the machine disturb it little.
"""

import subprocess
import sys
import time
from functools import partial

from bench.harness.bare_disk import GB, bare_syncs, bare_writes
from bench.harness.broker_process import Load, broker_process, environment
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import create_topic, round_trips

SIZES = (100, 1000)
ACKS = ("1", "all")


def produce(bench: Bench) -> list[Figure]:
    figures = []
    with bench.place.directory() as data, broker_process(data) as broker:
        for size in SIZES:
            for acks in ACKS:
                topic = f"produce-{size}-{acks}"
                run = partial(broker.load, "produce", topic, size, bench.pick(3, 1), acks)
                figures += _figures(f"produce/{size}/{acks}", f"produce {size} B, acks={acks}", size, bench, run)
    return figures


def consume(bench: Bench) -> list[Figure]:
    figures = []
    with bench.place.directory() as data, broker_process(data) as broker:
        for size in SIZES:
            topic = f"consume-{size}"
            broker.load("produce", topic, size, bench.pick(5, 2), "1")
            run = partial(broker.load, "consume", topic, size, bench.pick(5, 2))
            figures += _figures(f"consume/{size}", f"consume {size} B", size, bench, run)
    return figures


def _figures(name: str, title: str, size: int, bench: Bench, run: "partial[Load]") -> list[Figure]:
    loads, bare = [], []
    for number in range(bench.pick(5, 3)):
        bench.tell(f"{title}: round {number + 1}")
        bare_writes(bench)  # so that neither side pays for memory that the host has yet to give
        bare.append(bare_writes(bench))
        loads.append(run())
    rates = [load.messages / load.seconds / 1e6 for load in loads]
    clients = [100 * load.client_cpu / load.seconds for load in loads]
    brokers = [100 * load.broker_cpu / load.seconds for load in loads]
    per_gb = [load.broker_cpu / (load.messages * size / GB) for load in loads]
    is_demanded = name.startswith("produce")
    return [
        Figure(name, title, "M messages/s", Sample.of(rates)),
        Figure(
            f"{name}/client",
            f"{title}: the client's CPU",
            "% of a core",
            Sample.of(clients),
            demanded=Demand("ours", "least", 95) if is_demanded else None,
        ),
        Figure(
            f"{name}/broker",
            f"{title}: the broker's CPU",
            "% of a core",
            Sample.of(brokers),
            demanded=Demand("ours", "most", 60) if is_demanded else None,
        ),
        compare(f"{name}/cpu-per-gb", f"{title}: broker CPU", "s/GB", per_gb, bare, "bare 1 MB writes"),
    ]


def acknowledgement(bench: Bench) -> list[Figure]:
    """One batch in flight on a bare socket: with and without the disk, beside a bare fdatasync of the same size."""
    number = bench.pick(4000, 1000)
    with (
        bench.place.directory() as data,
        broker_process(data) as broker,
        RawConnection(broker.host, broker.port) as connection,
    ):
        create_topic(connection, "acks")
        sides = [partial(round_trips, connection, "acks", acks, number) for acks in (1, -1)]
        times: list[list[float]] = [[], [], []]
        for turn in range(bench.pick(6, 3)):
            bench.tell(f"acknowledgements: round {turn + 1}")
            for which, side in enumerate([*sides, partial(bare_syncs, bench, number // 4)]):
                times[which] += side()
    return [
        figure
        for which, title in enumerate(("ack, acks=1", "ack, acks=all", "bare write + fdatasync"))
        for figure in percentiles(f"ack/{which}", title, times[which])
    ]


def percentiles(name: str, title: str, times: list[float]) -> list[Figure]:
    return [
        Figure(f"{name}/p{percent}", f"{title}: p{percent}", "µs", Sample.of([1e6 * percentile(times, percent)]))
        for percent in (50, 99)
    ]


def start(bench: Bench) -> list[Figure]:
    """From the start of the process to the first acknowledged message, on an empty directory, and its memory then."""
    seconds, memory = [], []
    for _ in range(bench.pick(15, 7)):
        bench.tell("start of the process")
        with bench.place.directory() as data:
            begun = time.perf_counter()
            with broker_process(data) as broker:
                with RawConnection(broker.host, broker.port) as connection:
                    create_topic(connection, "acks")
                    round_trips(connection, "acks", -1, 1)
                seconds.append(1e3 * (time.perf_counter() - begun))
                memory.append(broker.memory_bytes() / 1e6)
    most = Demand("ours", "most", 250)
    first, later = _fixtures(bench)
    return [
        Figure("start/fixture", "the first fixture of a process", "ms", first, demanded=Demand("ours", "most", 150)),
        Figure("start/fixture-next", "a further fixture", "ms", later, demanded=Demand("ours", "most", 40)),
        Figure("start/first-ack", "start to the first acknowledged message", "ms", Sample.of(seconds), demanded=most),
        Figure("start/memory", "memory then", "MB", Sample.of(memory), demanded=Demand("ours", "most", 60)),
    ]


_FIXTURES = """
import time
start = time.perf_counter()
from tailrace.testing import Broker
for _ in range(6):
    with Broker() as broker:
        broker.create_topic("first")
        print(1e3 * (time.perf_counter() - start))
    start = time.perf_counter()
"""


def _fixtures(bench: Bench) -> tuple[Sample, Sample]:
    """Milliseconds until a broker in a test's process has created a topic: of the first one, imports included, and of
    those after it.
    """
    first: list[float] = []
    later: list[float] = []
    for _ in range(bench.pick(9, 4)):
        bench.tell("fixtures")
        command = [sys.executable, "-c", _FIXTURES]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=60)
        times = [float(line) for line in done.stdout.split()]
        first.append(times[0])
        later += times[1:]
    return Sample.of(first), Sample.of(later)
