"""A broker that keeps much: whether it is as fast with twenty gigabytes of history as with none, and whether a reader
who goes through more of it than memory holds is felt by a producer.

The second is measured with a broker whose page cache is capped (a memory cgroup, which needs root), so that a scan of a
few times that is a scan of history larger than memory. It begins with a cache that has forgotten the history, in each
round: else the second would read what the first had brought.
"""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Demand, Figure, compare
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import create_topic
from bench.harness.topics import delete_topic
from bench.measures.consumers import p99, p99_beside_cold_reader
from tailrace.protocol.frame import encode_request
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.record import Record, encode_batch

GB = 1 << 30
MEMORY = Path("/sys/fs/cgroup/memory")
CAP = 512 << 20
_IN_FLIGHT = 8
_RECORDS = 1000  # of a batch, of a kilobyte each
_VERSION = 9


def throughput(bench: Bench) -> list[Figure]:
    size, seconds = bench.pick(20, 2) * GB, bench.pick(4, 2)
    with (
        bench.place.directory() as empty,
        bench.place.directory() as full,
        broker_process(empty) as without,
        broker_process(full) as broker,
    ):
        bench.tell(f"writing {size / GB:.0f} GiB of history")
        write_history(broker, size)

        names = (f"live-{number}" for number in itertools.count())

        def rate(one: BrokerProcess) -> float:
            topic = next(names)
            load = one.load("produce", topic, 1000, seconds, "1")
            delete_topic(one.bootstrap, topic)  # or the disk would be full before the last round is over
            return load.messages / load.seconds

        title = f"produce 1 KB with {size / GB:.0f} GiB of history"
        with_history, alone = bench.take_turns(title, bench.pick(7, 3), partial(rate, broker), partial(rate, without))
    least = Demand("ratio", "least", 0.95, aim=1.0)
    return [compare("kept/throughput", title, "messages/s", with_history, alone, "with none", demanded=least)]


def scan(bench: Bench) -> list[Figure]:
    """`acks=1` round trips of a producer, with and without a reader of history of which little fits into memory."""
    size = bench.pick(4, 2) * GB
    with bench.place.directory() as data, broker_process(data) as broker, capped(broker):
        without, with_reader = _beside_reader(bench, "a scan larger than memory", broker, data, size)
    title = f"acks=1 p99 beside a scan of {size // CAP} times the page cache"
    most = Demand("ratio", "most", 2)
    return [compare("kept/scan", title, "µs", with_reader, without, "without it", demanded=most)]


def reader(bench: Bench) -> list[Figure]:
    """`acks=1` round trips of a producer, with and without a reader of ten gigabytes, where memory is not capped."""
    size = bench.pick(10, 2) * GB
    with bench.place.directory() as data, broker_process(data) as broker:
        without, with_reader = _beside_reader(bench, "a reader of long history", broker, data, size)
    title = f"acks=1 p99 beside a reader of {size // GB} GiB"
    most = Demand("ratio", "most", 1.5)
    return [compare("kept/reader", title, "µs", with_reader, without, "without it", demanded=most)]


def _beside_reader(
    bench: Bench, name: str, broker: BrokerProcess, data: str, size: int
) -> tuple[Sequence[float], Sequence[float]]:
    """Writes a history. Returns the p99 of a producer without a reader of it, and with one."""
    write_history(broker, size)
    number = bench.pick(3000, 1000)
    with RawConnection(broker.host, broker.port) as connection:
        create_topic(connection, "live")
        alone = partial(p99, connection, number)
        beside = partial(p99_beside_cold_reader, broker, Path(data, "history-0"), connection, number)
        without, with_reader = bench.take_turns(name, bench.pick(7, 4), alone, beside)
    return without, with_reader


def write_history(broker: BrokerProcess, size: int) -> None:
    """Batches of a megabyte, some in flight, on disk in the end."""
    with RawConnection(broker.host, broker.port) as connection:
        create_topic(connection, "history")
        frames = {acks: _frame(acks) for acks in (1, -1)}
        count = size // (_RECORDS * 1000)
        for number in range(count + _IN_FLIGHT):
            if number < count:
                connection.send_frame(frames[-1 if number == count - 1 else 1])
            if number >= _IN_FLIGHT:
                connection.receive_frame()


def _frame(acks: int) -> bytes:
    now = int(time.time() * 1000)
    records = encode_batch([Record(number, now, None, os.urandom(1000)) for number in range(_RECORDS)])
    data = [TopicProduceData(name="history", partition_data=[PartitionProduceData(index=0, records=records)])]
    return encode_request(ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=data), _VERSION, 0, "bench")


@contextmanager
def capped(broker: BrokerProcess) -> Iterator[None]:
    """The broker has a page cache of its own, and a small one. Raises OSError where that cannot be had."""
    group = MEMORY / f"tailrace-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(CAP))
        (group / "cgroup.procs").write_text(str(broker.process.pid))
        yield
    finally:
        for member in (group / "cgroup.procs").read_text().split():  # the broker, and what it has started
            with suppress(OSError):
                (MEMORY / "cgroup.procs").write_text(member)
        group.rmdir()
