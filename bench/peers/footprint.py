"""What a broker takes without doing much: memory, the time to start, and many partitions."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Figure, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.topics import make_topic
from bench.measures.monitor import INTERVAL_S, monitor_of
from bench.peers import kafka, tools
from bench.peers.first_ack import wait_for_first_ack
from bench.peers.latency import most
from bench.peers.session import MB, Peer, Session, against_kafka
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.testing.broker_process import free_port

PARTITIONS = 10_000
_TOPICS = 10
_VERSION = 9
_REST_S = 5


def memory(session: Session) -> list[Figure]:
    """Idle is after the first acknowledged message; the peak is that of the whole run until now."""
    peers = (session.ours, session.kafka)
    with session.ours.topic("memory") as topic, session.kafka.topic("memory"):
        loaded = [_loaded(session, topic, peer) for peer in peers]
    session.bench.tell("memory: at rest")
    time.sleep(session.bench.pick(_REST_S, 1))
    found = {
        "idle": [peer.idle_bytes for peer in peers],
        "loaded": loaded,
        "after": [peer.broker.memory_bytes() for peer in peers],
        "peak": [peer.watch.peak() for peer in peers],
    }
    return [
        against_kafka(
            f"memory/{when}",
            f"memory, {when}",
            "MB",
            [ours / 1e6],
            [theirs / 1e6],
            most(0.12, 0.06) if when == "peak" else None,
            note="RSS of the whole process tree, over the whole run until then" if when == "peak" else "",
        )
        for when, (ours, theirs) in found.items()
    ]


def with_monitor(session: Session) -> list[Figure]:
    """All processes that `tailrace serve` starts: the other measures go without the monitor."""
    bench = session.bench
    with bench.place.directory() as data, broker_process(data, monitor=True) as broker:
        wait_for_first_ack(broker)
        monitor_of(broker)
        bench.tell("memory: with the monitor")
        time.sleep(bench.pick(2 * INTERVAL_S, 3))
        ours = broker.memory_bytes()
    note = "RSS of the whole process tree; pages that processes share are counted for each"
    title = "memory, idle, with the monitor"
    return [against_kafka("memory/monitor", title, "MB", [ours / 1e6], [session.kafka.idle_bytes / 1e6], note=note)]


def _loaded(session: Session, topic: str, peer: Peer) -> int:
    """Right after the load, before anything is given back."""
    session.bench.tell(f"memory: {peer.name} under load")
    count = session.bench.pick(300, 20) * MB // 1000
    tools.c_produce(peer.broker, topic, 1000, count, "none")
    tools.c_consume(peer.broker, topic, 1000, count)
    return peer.broker.memory_bytes()


def start(session: Session) -> list[Figure]:
    """Processes of their own, on empty directories, while the others are up and have nothing to do."""
    bench = session.bench
    sides = partial(_start_ours, bench), partial(_start_kafka, bench)
    ours, theirs = bench.take_turns("start", bench.pick(5, 1), *sides, warm_up=bench.pick(1, 0))
    return [against_kafka("start/first-ack", "start to first ack", "s", ours, theirs, most(0.06, 0.04))]


def _start_ours(bench: Bench) -> float:
    with bench.place.directory() as data:
        return _start_s(BrokerProcess(data, port=free_port()))


def _start_kafka(bench: Bench) -> float:
    with bench.place.directory() as data:
        return _start_s(kafka.KafkaProcess(Path(data)))


def _start_s(broker: BrokerProcess) -> float:
    """Seconds from the start of the process to its first acknowledged message."""
    begun = time.perf_counter()
    broker.start(wait=False)
    try:
        wait_for_first_ack(broker)
        return time.perf_counter() - begun
    finally:
        broker.kill()


def metadata(session: Session) -> list[Figure]:
    """Ten topics of a thousand partitions, on brokers that have nothing else: all of it in one answer."""
    bench = session.bench
    each = bench.pick(PARTITIONS, PARTITIONS // 10) // _TOPICS
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(broker_process(stack.enter_context(bench.place.directory()))),
            stack.enter_context(kafka.kafka_process(Path(stack.enter_context(bench.place.directory())))),
        ]
        created = [_create(bench, broker, each) for broker in brokers]
        sides = [partial(_ask_all, broker, bench.pick(20, 5), each * _TOPICS) for broker in brokers]
        ours, theirs = bench.take_turns("metadata", bench.pick(7, 2), *sides)
        resident = [broker.memory_bytes() / 1e6 for broker in brokers]
    title = f"{each * _TOPICS:,} partitions"
    note = "ours makes the files of a partition when something is written there"
    return [
        against_kafka("partitions/metadata", f"{title}: metadata of all, p50", "ms", ours, theirs),
        against_kafka("partitions/created", f"{title}: created", "s", created[:1], created[1:], note=note),
        against_kafka("partitions/memory", f"{title}: memory", "MB", resident[:1], resident[1:]),
    ]


def _create(bench: Bench, broker: BrokerProcess, each: int) -> float:
    begun = time.perf_counter()
    for number in range(_TOPICS):
        bench.tell(f"{each * _TOPICS:,} partitions: topic {number + 1} of {_TOPICS}")
        make_topic(broker.bootstrap, f"many-{number}", each)
    with RawConnection(broker.host, broker.port) as connection:
        while _known(connection.ask(MetadataRequest(topics=None), MetadataResponse, _VERSION)) < each * _TOPICS:
            time.sleep(0.1)
    return time.perf_counter() - begun


def _known(answer: MetadataResponse) -> int:
    """Partitions that have a leader."""
    return sum(1 for topic in answer.topics for one in topic.partitions if not one.error_code)


def _ask_all(broker: BrokerProcess, number: int, least: int) -> float:
    """Milliseconds from the request to the last byte of the answer."""
    request = encode_request(MetadataRequest(topics=None), _VERSION, 0, "bench")
    times = []
    with RawConnection(broker.host, broker.port) as connection:
        for _ in range(number):
            begun = time.perf_counter()
            answer = connection.exchange(request)
            times.append(time.perf_counter() - begun)
        assert _known(decode_response(MetadataResponse, _VERSION, answer)[1]) >= least
    return 1e3 * percentile(times, 50)
