"""Many at once: two hundred small producers, and ten readers of one topic."""

import json
import sys
from functools import partial
from typing import Any

from bench.harness.measure import Demand, Figure, is_clear, percentile
from bench.peers import tools
from bench.peers.latency import most
from bench.peers.session import MB, Peer, Session, against_kafka

CONNECTIONS = 200
READERS = 10
_SIZE = 1000


def small_producers(session: Session) -> list[Figure]:
    """Each with ten messages a second, `acks=1`, one at a time; see `crowd_driver`."""
    work = partial(_crowd, session.bench.pick(8, 3))
    ours, theirs = session.versus(f"{CONNECTIONS} producers", session.bench.pick(5, 2), work)
    driver = max(ours + theirs, key=lambda done: done["cpu"])
    note = f"the driver took at most {driver['cpu']:.0%} of a core, and was {1e3 * driver['late']:.1f} ms late (p99)"
    return [
        against_kafka(
            f"crowd/{CONNECTIONS}/p{percent}",
            f"{CONNECTIONS} small producers, acks=1: p{percent}",
            "µs",
            [1e6 * percentile(done["latencies"], percent) for done in ours],
            [1e6 * percentile(done["latencies"], percent) for done in theirs],
            most(1.0, 0.5) if percent == 99 else None,
            note=note if percent == 99 else "",
        )
        for percent in (50, 99)
    ]


def _crowd(seconds: int, peer: Peer) -> dict[str, Any]:
    where = [peer.broker.host, str(peer.broker.port), "crowd", str(CONNECTIONS), str(seconds)]
    return dict(json.loads(tools.printed_by([sys.executable, "-m", "bench.programs.crowd_driver", *where])))


def fan_out(session: Session) -> list[Figure]:
    """All of a topic by ten readers at once: by kcat, and by bare sockets, which take the clients out of the way."""
    count = session.bench.pick(150, 10) * MB // _SIZE
    with session.ours.topic("fan-out") as topic, session.kafka.topic("fan-out"):
        for peer in (session.ours, session.kafka):
            tools.c_produce(peer.broker, topic, _SIZE, count, "none")
        rounds = session.bench.pick(5, 2)
        figures = []
        if tools.kcat_missing() is None:
            work = partial(_kcats, topic, count)
            title = f"fan-out to {READERS}, kcat: total"
            least = Demand("ratio", "least", 0.97, aim=1.3)
            ours, theirs = session.versus(
                title, rounds, work, warm_up=0, is_clear=lambda sides: is_clear(least, *sides)
            )
            figures.append(against_kafka("fan-out/kcat", title, "MB/s", ours, theirs, least))
        title = f"fan-out to {READERS}, bare sockets: total"
        ours, theirs = session.versus(title, rounds, partial(_sockets, topic), warm_up=0)
    return [*figures, against_kafka("fan-out/raw", title, "MB/s", ours, theirs)]


def _kcats(topic: str, count: int, peer: Peer) -> float:
    return tools.kcat_consume(peer.broker, topic, _SIZE, count, READERS).messages_per_second * _SIZE / 1e6


def _sockets(topic: str, peer: Peer) -> float:
    where = [peer.broker.host, str(peer.broker.port), topic, str(READERS)]
    printed = tools.printed_by([sys.executable, "-m", "bench.programs.reader", *where])
    done = json.loads(printed.splitlines()[-1])
    return float(done["bytes"] / done["seconds"] / 1e6)
