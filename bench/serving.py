"""The broker as a process: what it takes of a core while a C client uses one, how soon it acknowledges, how soon it is
there.

The client is the bottleneck where it uses a whole core and the broker much less than one; what the broker uses is the
figure. CPU time is the kernel's count, so neighbours on the machine disturb it little.
"""

import os
import subprocess
import sys
import time
from functools import partial

from bench.batches import batch_of
from bench.harness import Bench, Demand, Figure, Sample, compare, percentile
from bench.processes import Load, RawConnection, broker_process, environment, start_broker, wait_until_ready
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

GB = 1e9
SIZES = (100, 1000)
ACKS = ("1", "all")
_VERSION = 9
_SOON = (3, 5, 6)  # the errors of a topic that is not known yet, or has no leader yet, or one that does not know it


class Refused(RuntimeError):
    def __init__(self, error: int) -> None:
        super().__init__(f"a batch was refused: error {error}")
        self.error = error


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


def bare_writes(bench: Bench, size: int | None = None) -> float:
    """CPU seconds for each GB that is written to a new file, which is then removed: about as much as a load writes."""
    size = size or bench.pick(5, 2) << 29
    chunk = os.urandom(1 << 20)
    with bench.place.directory() as path:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            cpu = time.process_time()
            for position in range(0, size, len(chunk)):
                os.pwrite(descriptor, chunk, position)
            return (time.process_time() - cpu) / (size / GB)
        finally:
            os.close(descriptor)
            os.unlink(path)


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


def create_topic(connection: RawConnection, topic: str) -> None:
    connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, _VERSION)


def open_topic(connection: RawConnection, topic: str) -> int:
    """Creates it if need be, and waits until it has taken a batch, which Kafka's does somewhat later. Returns where
    that batch stands.
    """
    frame = produce_frame(topic, 1)
    while True:
        create_topic(connection, topic)
        try:
            return base_offset(connection.exchange(frame))
        except Refused as refused:
            if refused.error not in _SOON:
                raise
            time.sleep(0.002)


def produce_frame(topic: str, acks: int) -> bytes:
    """One record of 100 bytes."""
    records = batch_of(170, now_ms=int(time.time() * 1000))
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return encode_request(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), _VERSION, 0, "bench")


def round_trips(connection: RawConnection, topic: str, acks: int, number: int) -> list[float]:
    """Seconds that each took. The last one's answer is looked at: a broker that refuses is fast, too."""
    frame = produce_frame(topic, acks)
    times, answer = [], b""
    for _ in range(number):
        start = time.perf_counter()
        answer = connection.exchange(frame)
        times.append(time.perf_counter() - start)
    base_offset(answer)
    return times


def base_offset(answer: bytes) -> int:
    """Where a batch came to stand, by the answer to `produce_frame`; raises where it was refused."""
    partition = decode_response(ProduceResponse, _VERSION, answer)[1].responses[0].partition_responses[0]
    if partition.error_code:
        raise Refused(partition.error_code)
    return partition.base_offset


def bare_syncs(bench: Bench, number: int) -> list[float]:
    times = []
    with bench.place.directory() as path:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            for _ in range(number):
                start = time.perf_counter()
                os.write(descriptor, bytes(170))
                os.fdatasync(descriptor)
                times.append(time.perf_counter() - start)
        finally:
            os.close(descriptor)
            os.unlink(path)
    return times


def start(bench: Bench) -> list[Figure]:
    """From the start of the process to the first acknowledged message, on an empty directory, and its memory then."""
    seconds, memory = [], []
    for _ in range(bench.pick(15, 7)):
        bench.tell("start of the process")
        with bench.place.directory() as data:
            begun = time.perf_counter()
            process = start_broker(data)
            try:
                broker = wait_until_ready(process)
                with RawConnection(broker.host, broker.port) as connection:
                    create_topic(connection, "acks")
                    round_trips(connection, "acks", -1, 1)
                seconds.append(1e3 * (time.perf_counter() - begun))
                memory.append(broker.memory_bytes() / 1e6)
            finally:
                process.terminate()
                process.wait(30)
                if process.stdout is not None:
                    process.stdout.close()
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
