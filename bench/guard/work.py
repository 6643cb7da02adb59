"""The hot paths and their limits: each is some work for a broker, and the time that each unit of it takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.harness import process_tree
from bench.harness.broker_process import BrokerProcess
from bench.harness.measure import percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import base_offset, fetch_frame, open_topic, produce_frame, round_trips
from bench.programs.load import payload
from tailrace.protocol.frame import encode_request
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.record import Record, encode_batch

MB = 1 << 20
GB = 1e9
_VERSION = 9
_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Work:
    """`limit` is how many times the base's time it may take. `writes` is how much memory it fills: that is touched
    before, so that neither side pays for fresh pages.
    """

    title: str
    unit: str
    run: Callable[[BrokerProcess], float]
    limit: float = 1.03
    writes: int = 0


def produce_large(broker: BrokerProcess) -> float:
    return _produce(broker, "guard-1000", size=1000, number=1000, batches=150)


def produce_small(broker: BrokerProcess) -> float:
    return _produce(broker, "guard-100", size=100, number=150, batches=3000)


def _produce(broker: BrokerProcess, topic: str, size: int, number: int, batches: int) -> float:
    """Seconds for each GB of batches of so many messages, some in flight, `acks=1`."""
    records, frame = _batch(topic, size, number)
    with RawConnection(broker.host, broker.port) as connection:
        open_topic(connection, topic)
        before = process_tree.cpu_seconds(broker.process.pid)
        answer = b""
        for sent in range(batches + _IN_FLIGHT):
            if sent < batches:
                connection.send_frame(frame)
            if sent >= _IN_FLIGHT:
                answer = connection.receive_frame()
        taken = process_tree.cpu_seconds(broker.process.pid) - before
        base_offset(answer)
    return taken / (batches * records / GB)


def _batch(topic: str, size: int, number: int) -> tuple[int, bytes]:
    now = int(time.time() * 1000)
    batch = encode_batch([Record(at, now, None, payload(size)) for at in range(number)])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=data)
    return len(batch), encode_request(request, _VERSION, 0, "bench")


_FETCHED = "guard-fetched"
_FETCHES, _RECORDS = 64, 1000


def prepare_fetch(broker: BrokerProcess) -> None:
    _, frame = _batch(_FETCHED, 1000, _RECORDS)
    with RawConnection(broker.host, broker.port) as connection:
        open_topic(connection, _FETCHED)
        for _ in range(_FETCHES):
            base_offset(connection.exchange(frame))


def fetch(broker: BrokerProcess) -> float:
    """Seconds for each GB, a megabyte at a time, of what the page cache has. What `open_topic` left stands first."""
    frames = [fetch_frame(_FETCHED, 1 + number * _RECORDS, 100) for number in range(_FETCHES)]
    size = 0
    with RawConnection(broker.host, broker.port) as connection:
        before = process_tree.cpu_seconds(broker.process.pid)
        for frame in frames * 3:
            size += len(connection.exchange(frame))
        taken = process_tree.cpu_seconds(broker.process.pid) - before
    assert size > 3 * _FETCHES * MB // 2, "fetches were answered with too little"
    return taken / (size / GB)


_ROUND_TRIPS = 3000


def round_trip(broker: BrokerProcess) -> float:
    """CPU microseconds for each batch of one record of 100 bytes, one in flight, `acks=1`."""
    frame = produce_frame("guard-small", 1)
    with RawConnection(broker.host, broker.port) as connection:
        open_topic(connection, "guard-small")
        before = process_tree.cpu_seconds(broker.process.pid)
        for _ in range(_ROUND_TRIPS):
            connection.exchange(frame)
        return 1e6 * (process_tree.cpu_seconds(broker.process.pid) - before) / _ROUND_TRIPS


def acknowledgement(broker: BrokerProcess, acks: int) -> float:
    """The median of the wall clock microseconds from a request to its response, one in flight."""
    topic = f"guard-acks-{acks}"
    with RawConnection(broker.host, broker.port) as connection:
        open_topic(connection, topic)
        return 1e6 * percentile(round_trips(connection, topic, acks, _ROUND_TRIPS // 2), 50)


BROKER_WORK = {
    "produce-1kb": Work("produce 1 KB, batches of 1 MB: CPU", "s/GB", produce_large, writes=160 * MB),
    "produce-100b": Work("produce 100 B, batches of 16 KB: CPU", "s/GB", produce_small, writes=60 * MB),
    "fetch-1kb": Work("fetch 1 KB, 1 MB at a time: CPU", "s/GB", fetch),
    "round-trip": Work("produce one record, one in flight: CPU", "µs", round_trip, limit=1.1),
    "ack-1": Work("produce one record, acks=1: p50", "µs", partial(acknowledgement, acks=1), limit=1.15),
    "ack-all": Work("produce one record, acks=all: p50", "µs", partial(acknowledgement, acks=-1), limit=1.15),
}
APPEND = "append"  # to a log, without a broker
LIMITS = {name: work.limit for name, work in BROKER_WORK.items()} | {APPEND: 1.1}


def title_of(name: str) -> str:
    return BROKER_WORK[name].title if name in BROKER_WORK else "append of a batch of 1 KB: CPU"


def unit_of(name: str) -> str:
    return BROKER_WORK[name].unit if name in BROKER_WORK else "µs"
