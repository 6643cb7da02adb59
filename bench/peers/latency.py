"""How soon a message is acknowledged, and how soon a reader has it: with one in flight, on bare sockets, and while a
foreign client keeps the broker at half of what it can do.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.harness.measure import Demand, Figure, is_clear, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import open_topic, round_trips
from bench.measures.consumers import wake_times
from bench.peers import tools
from bench.peers.session import KAFKA, KAFKA_SYNCING, Peer, Session, against_kafka
from bench.programs import echo

PERCENTILES = (50, 99, 99.9)
SYNCED_BY_BOTH = "both with an fsync"
Demands = Mapping[float, Demand]


def most(limit: float, aim: float) -> Demand:
    return Demand("ratio", "most", limit, aim=aim)


IN_MEMORY: Demands = {50: most(0.35, 0.2), 99: most(0.5, 0.25)}
BY_BOTH: Demands = {50: most(0.5, 0.25), 99: most(0.7, 0.4)}
# The name of a figure, what it is, and the two sides.
ACK_FOR_SCALE = (
    ("ack/floor/1", "for scale: a bare socket that sleeps and answers", "bare", "kafka/1"),
    ("ack/floor/look", "the least: never sleeps, sums, writes, answers", "bare/look", "kafka/1"),
    ("ack/floor/synced", "the least: writes, syncs, answers", "bare/sync", "kafka/synced"),
)
Sides = dict[str, Callable[[], list[float]]]


def acknowledged(session: Session) -> list[Figure]:
    """One batch of one record of 100 bytes in flight."""
    number = session.bench.pick(4000, 300)
    bare, file = partial(echo.round_trips, number), Path(session.bench.place.path, "echo")
    sides: Sides = {
        "ours/1": partial(_ack_times, session.ours, 1, number),
        "ours/all": partial(_ack_times, session.ours, -1, number),
        "kafka/1": partial(_ack_times, session.kafka, 1, number),
        "kafka/all": partial(_ack_times, session.kafka, -1, number),
        "kafka/synced": partial(_ack_times, session.kafka_syncing, -1, number),
        "bare": bare,
        "bare/look": partial(bare, "look", file),
        "bare/sync": partial(bare, "sync", file),
    }

    def are_clear(values: list[list[list[float]]]) -> bool:
        times = dict(zip(sides, values, strict=True))
        in_memory = _are_clear(IN_MEMORY, times["ours/1"], times["kafka/1"])
        return in_memory and _are_clear(BY_BOTH, times["ours/all"], times["kafka/synced"])

    rounds = session.bench.pick(9, 2)
    values = session.bench.take_turns("acknowledgements", rounds, *sides.values(), is_clear=are_clear)
    times = dict(zip(sides, values, strict=True))
    figures = _percentiles("ack/1", "ack, acks=1", times["ours/1"], times["kafka/1"], IN_MEMORY)
    title = "ack, ours with fsync, Kafka without"
    figures += _percentiles("ack/all", title, times["ours/all"], times["kafka/all"], {50: most(0.7, 0.35)})
    title = f"ack, {SYNCED_BY_BOTH}"
    figures += _percentiles("ack/synced", title, times["ours/all"], times["kafka/synced"], BY_BOTH, KAFKA_SYNCING)
    return figures + _for_scale(ACK_FOR_SCALE, times)


def _for_scale(rows: Iterable[tuple[str, str, str, str]], times: Mapping[str, list[list[float]]]) -> list[Figure]:
    figures = []
    for name, title, side, against in rows:
        baseline = KAFKA_SYNCING if against == "kafka/synced" else KAFKA
        figures += _percentiles(name, title, times[side], times[against], {}, baseline)
    return figures


def _ack_times(peer: Peer, acks: int, number: int) -> list[float]:
    topic = f"ack-{acks}"
    with RawConnection(peer.broker.host, peer.broker.port) as connection:
        open_topic(connection, topic)
        return round_trips(connection, topic, acks, number)


def _are_clear(limits: Demands, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> bool:
    return all(
        is_clear(demand, *([percentile(times, percent) for times in side] for side in (ours, theirs)))
        for percent, demand in limits.items()
    )


def _percentiles(
    name: str,
    title: str,
    ours: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    limits: Demands,
    baseline: str = KAFKA,
) -> list[Figure]:
    """Of the times of each round, in seconds."""
    return [
        against_kafka(
            f"{name}/p{percent}",
            f"{title}: p{percent}",
            "µs",
            [1e6 * percentile(times, percent) for times in ours],
            [1e6 * percentile(times, percent) for times in theirs],
            limits.get(percent),
            baseline=baseline,
        )
        for percent in PERCENTILES
    ]


END_TO_END_FOR_SCALE = (("end-to-end/floor", "the least: writes, syncs in a thread, passes on", "bare", "kafka"),)


def end_to_end(session: Session) -> list[Figure]:
    """From a producer's send to the answer of a Fetch that was waiting; `acks=all`."""
    number = session.bench.pick(1500, 200)
    peers = {"ours": session.ours, "kafka": session.kafka, "kafka/synced": session.kafka_syncing}
    sides: Sides = {name: partial(wake_times, peer.broker, "end-to-end", -1, number) for name, peer in peers.items()}
    sides["bare"] = partial(echo.passed_on, number, Path(session.bench.place.path, "echo"))
    values = session.bench.take_turns("end to end", session.bench.pick(9, 2), *sides.values())
    times = dict(zip(sides, values, strict=True))
    title = "end to end, ours with fsync, Kafka without"
    figures = _percentiles("end-to-end/all", title, times["ours"], times["kafka"], {50: most(0.7, 0.4)})
    title = f"end to end, {SYNCED_BY_BOTH}"
    limits: Demands = {99: most(0.8, 0.5)}
    figures += _percentiles("end-to-end/synced", title, times["ours"], times["kafka/synced"], limits, KAFKA_SYNCING)
    return figures + _for_scale(END_TO_END_FOR_SCALE, times)


def end_to_end_java(session: Session) -> list[Figure]:
    """The same by Kafka's own tool."""
    number = session.bench.pick(5000, 500)
    work = partial(_java_end_to_end, number)
    ours, theirs = session.versus("EndToEndLatency", session.bench.pick(3, 1), work, warm_up=0)
    title, note = "end to end by EndToEndLatency: mean", "acks=all: ours with fsync, Kafka without"
    return [against_kafka("end-to-end/java/mean", title, "ms", ours, theirs, note=note)]


def _java_end_to_end(number: int, peer: Peer) -> float:
    with RawConnection(peer.broker.host, peer.broker.port) as connection:
        open_topic(connection, "end-to-end-java")
    return tools.java_end_to_end(peer.broker, "end-to-end-java", number)


_SIZE = 1000
_WARM_S = 3  # until the tool sends as fast as it should


def half_of_peak(session: Session) -> list[Figure]:
    """ProducerPerformance at half of what the slower of both can take, `acks=all`; and beside it one in flight."""
    rounds, seconds = session.bench.pick(4, 1), session.bench.pick(8, 5)
    with session.ours.topic("half") as topic, session.kafka.topic("half"):
        count = session.bench.pick(400_000, 30_000)
        session.bench.tell("half of peak: what the peak is")
        peers = (session.ours, session.kafka)
        peaks = [tools.java_produce(peer.broker, topic, _SIZE, count, "none").messages_per_second for peer in peers]
        rate = int(min(peaks) / 2)
        work = partial(_at_rate, topic, rate, seconds)
        ours, theirs = session.versus("half of peak", rounds, work, warm_up=0)
    probed = _percentiles(
        "half/probe",
        f"ack of one in flight beside {rate:,} messages/s",
        [times for times, _ in ours],
        [times for times, _ in theirs],
        {},
    )
    return probed + [
        against_kafka(
            f"half/java/{field}",
            f"ack at {rate:,} messages/s of 1 KB: {field.replace('_', '.')}",
            "ms",
            [getattr(produced, field) for _, produced in ours],
            [getattr(produced, field) for _, produced in theirs],
        )
        for field in ("p50", "p99", "p99_9")
    ]


def _at_rate(topic: str, rate: int, seconds: int, peer: Peer) -> tuple[list[float], tools.Produced]:
    command = tools.produce_command(peer.broker, topic, _SIZE, rate * (seconds + _WARM_S), rate)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        time.sleep(_WARM_S)
        times: list[float] = []
        until = time.perf_counter() + seconds - 2
        with RawConnection(peer.broker.host, peer.broker.port) as connection:
            open_topic(connection, "half-probe")
            while time.perf_counter() < until and process.poll() is None:
                times += round_trips(connection, "half-probe", -1, 50)
        printed, _ = process.communicate(timeout=120)
    return times, tools.read_produced(printed)
