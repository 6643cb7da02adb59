"""A reader of history that the page cache has forgotten, while a producer goes on: how fast it reads, and what the
producer feels of it.
"""

import json
import subprocess
import sys
from functools import partial

from bench.harness.bare_disk import forget_cached
from bench.harness.measure import Figure, compare, is_clear, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import open_topic, round_trips
from bench.peers import tools
from bench.peers.latency import most
from bench.peers.session import MB, Peer, Session, against_kafka

_SIZE = 1000


def cold(session: Session) -> list[Figure]:
    volume, number = session.bench.pick(1500, 60) * MB, session.bench.pick(3000, 300)
    peers = (session.ours, session.kafka)
    with session.ours.topic("cold") as topic, session.kafka.topic("cold"):
        for peer in peers:
            session.bench.tell(f"{peer.name}: writing {volume // MB} MB of history")
            tools.c_produce(peer.broker, topic, _SIZE, volume // _SIZE, "none")
        alone = [partial(_alone, number, peer) for peer in peers]
        beside = [partial(_beside, topic, peer) for peer in peers]
        rounds, limit = session.bench.pick(9, 2), most(2, 1.3)  # many: a p99 differs by a third from the next
        sides = session.bench.take_turns(
            "a cold reader",
            rounds,
            *alone,
            *beside,
            is_clear=lambda sides: is_clear(limit, _p99(sides[2]), _p99(sides[0])),
        )
    p99 = [_p99(side) for side in sides]
    rates = [[rate for _, rate in side] for side in sides[2:]]
    title = "acks=1 p99 during a cold catch-up read"
    return [
        compare("cold/ours", f"{title}, and without", "µs", p99[2], p99[0], "ours, without", demanded=limit),
        compare("cold/kafka", f"Kafka's {title}, and without", "µs", p99[3], p99[1], "Kafka, without"),
        against_kafka("cold/p99", title, "µs", p99[2], p99[3]),
        against_kafka("catch-up/rate", "cold catch-up read beside a producer", "MB/s", rates[0], rates[1]),
    ]


def _p99(side: list[tuple[list[float], float]]) -> list[float]:
    return [1e6 * percentile(times, 99) for times, _ in side]


def _alone(number: int, peer: Peer) -> tuple[list[float], float]:
    with RawConnection(peer.broker.host, peer.broker.port) as connection:
        open_topic(connection, "live")
        return round_trips(connection, "live", 1, number), 0.0


def _beside(topic: str, peer: Peer) -> tuple[list[float], float]:
    """As long as the reader has something to read."""
    for path in (peer.logs / f"{topic}-0").glob("*.log"):
        forget_cached(path)
    command = [sys.executable, "-m", "bench.programs.reader", peer.broker.host, str(peer.broker.port), topic, "1"]
    times: list[float] = []
    with (
        RawConnection(peer.broker.host, peer.broker.port) as connection,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader,
    ):
        open_topic(connection, "live")
        assert reader.stdout is not None
        reader.stdout.readline()
        while reader.poll() is None:
            times += round_trips(connection, "live", 1, 20)
        done = json.loads(reader.stdout.readline())
    return times, done["bytes"] / done["seconds"] / 1e6
