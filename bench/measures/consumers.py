"""Readers that wait: how soon they hear of an append, and what it costs to have a thousand of them.

And readers of cold history, which the page cache has forgotten: what they cost a producer beside them.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.harness.bare_disk import bare_syncs, forget_cached
from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import base_offset, create_topic, fetch_frame, open_topic, produce_frame, round_trips
from bench.measures.broker import percentiles

MB = 1 << 20
PARKED = 1000
PARKED_S = 0.0005  # after so long a Fetch that waits is parked
_RECORD_BYTES = 100  # of what `produce_frame` sends


def wake(bench: Bench) -> list[Figure]:
    """From a producer's send to the answer of a Fetch that was waiting: `acks=1`, so that only the reader wants the
    flush.
    """
    number = bench.pick(3000, 800)
    with bench.place.directory() as data, broker_process(data) as broker:
        times = wake_times(broker, "wake", 1, number)
    disk = bare_syncs(bench, number // 2)
    return percentiles("wake", "a waiting reader sees an append", times) + percentiles(
        "wake/disk", "bare write + fdatasync", disk
    )


def wake_times(broker: BrokerProcess, topic: str, acks: int, number: int) -> list[float]:
    """Seconds from a producer's send to the answer of a Fetch that was waiting, on bare sockets."""
    times = []
    frame = produce_frame(topic, acks)
    with RawConnection(broker.host, broker.port) as producer, RawConnection(broker.host, broker.port) as reader:
        offset = open_topic(producer, topic)
        for _ in range(number):
            offset += 1
            reader.send_frame(fetch_frame(topic, offset, 30_000))
            time.sleep(PARKED_S)
            start = time.perf_counter()
            producer.send_frame(frame)
            answer = reader.receive_frame()
            times.append(time.perf_counter() - start)
            assert base_offset(producer.receive_frame()) == offset, "another client writes to this topic"
            if len(answer) < _RECORD_BYTES:
                raise RuntimeError("a Fetch was answered without the record that it waited for")
    return times


def parked(bench: Bench) -> list[Figure]:
    """What a thousand connections that wait cost: in one long poll, and in polls of 500 ms as clients make them."""
    figures = []
    for wait_ms, limit in ((30_000, 1), (500, 25)):
        bench.tell(f"{PARKED} parked connections, polls of {wait_ms} ms")
        cpu = _parked_cpu(bench, wait_ms, seconds=bench.pick(10, 5))
        title = f"{PARKED} connections parked in polls of {wait_ms / 1000:g} s"
        demanded = Demand("ours", "most", limit)
        figures.append(Figure(f"parked/{wait_ms}", title, "% of a core", Sample.of([cpu]), demanded=demanded))
    return figures


def _parked_cpu(bench: Bench, wait_ms: int, seconds: float) -> float:
    frame = fetch_frame("parked", 0, wait_ms)
    with bench.place.directory() as data, broker_process(data) as broker, ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.host, broker.port)) for _ in range(PARKED)]
        create_topic(connections[0], "parked")
        for number, connection in enumerate(connections):
            connection.send_frame(frame)
            if wait_ms < 1000:
                time.sleep(wait_ms / 1000 / PARKED)  # clients do not poll all at once
            elif number % 100 == 0:
                time.sleep(0.01)
        time.sleep(1)
        before, start = broker.cpu_seconds(), time.perf_counter()
        if wait_ms > 1000 * seconds:
            time.sleep(seconds)
        else:
            _poll_again_and_again(connections, frame, start + seconds)
        return 100 * (broker.cpu_seconds() - before) / (time.perf_counter() - start)


def _poll_again_and_again(connections: list[RawConnection], frame: bytes, until: float) -> None:
    while time.perf_counter() < until:
        for connection in connections:  # in the order in which they were sent, which is that of the answers
            connection.receive_frame()
            connection.send_frame(frame)


def cold_reader(bench: Bench) -> list[Figure]:
    """`acks=1` round trips of a producer, with and without a reader of history that the page cache has forgotten."""
    number = bench.pick(3000, 1000)
    with bench.place.directory() as data, broker_process(data) as broker:
        broker.load("produce", "history", 1000, bench.pick(8, 4), "1")
        with RawConnection(broker.host, broker.port) as connection:
            create_topic(connection, "live")
            alone = partial(p99, connection, number)
            beside = partial(p99_beside_cold_reader, broker, Path(data, "history-0"), connection, number)
            without, with_reader = bench.take_turns("a cold reader", bench.pick(7, 4), alone, beside)
    title = "acks=1 p99 beside a reader of cold history"
    demanded = Demand("ratio", "most", 2)
    return [compare("cold-reader", title, "µs", with_reader, without, "without it", demanded=demanded)]


def p99(connection: RawConnection, number: int) -> float:
    return 1e6 * percentile(round_trips(connection, "live", 1, number), 99)


def p99_beside_cold_reader(broker: BrokerProcess, history: Path, connection: RawConnection, number: int) -> float:
    """Of the topic `history`, from its start to its end, again and again. The page cache has forgotten all of it."""
    for path in history.glob("*.log"):
        forget_cached(path)
    # A process of its own: in a thread of ours it would disturb the one who measures.
    reader = subprocess.Popen(
        [sys.executable, "-m", "bench.programs.reader", broker.host, str(broker.port), "history", "1", "again"]
    )
    try:
        time.sleep(0.5)
        return p99(connection, number)
    finally:
        reader.kill()
        reader.wait()
