"""Queues beside RabbitMQ: workers that acknowledge each message by itself, with Java clients on both sides.

A queue of 1 KB messages, durable on both sides, is filled first. Then 1 and 20 workers work it off with a prefetch of
100, and, for information, of 1: from the first delivery until the broker has confirmed the last acknowledgement.
Clients and brokers share the machine. Kafka's share groups do the same with the same client.
"""

import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.harness.measure import Demand, Figure, Sample
from bench.peers import kafka, others, tools
from bench.peers.others import Running
from bench.peers.session import KAFKA, Peer, Session, against_kafka
from tailrace.client.admin.configs import alter_group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.options import ClientOptions

SIZE = 1000
WORKERS = (1, 20)
PREFETCH = 100
RABBITMQ = next(other for other in others.OTHERS if other.client == "rabbitmq")
_PROGRAM = Path(__file__).parents[1] / "programs" / "QueueWorkers.java"
_SECONDS = 600
_CONFIGS = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}


def queues(session: Session) -> Iterator[Figure]:
    if reason := missing():
        yield Figure("queue", "queues beside RabbitMQ", "messages/s", Sample.of([0.0]), note=f"not run: {reason}")
        return
    with ExitStack() as stack:
        rabbit = stack.enter_context(others.running(session, RABBITMQ))
        classes = stack.enter_context(_compiled())
        for workers in WORKERS:
            for prefetch in (PREFETCH, 1):
                yield from _figures(session, rabbit, classes, workers, prefetch)


def missing() -> str | None:
    """Why this cannot be run here; None where it can."""
    if not list(_jars().glob("amqp-client-*.jar")):
        return f"no amqp-client in {_jars()}; scripts/fetch-peers gets it"
    if not shutil.which("javac"):
        return "no javac on the PATH; on Debian or Ubuntu: apt-get install default-jdk-headless"
    return others.missing(RABBITMQ) or kafka.missing()


def _figures(session: Session, rabbit: Running, classes: Path, workers: int, prefetch: int) -> list[Figure]:
    count = session.bench.pick(200_000 if prefetch > 1 else 20_000, 2_000)
    sides = [
        partial(_share, classes, session.ours, count, workers, prefetch),
        partial(_rabbitmq, classes, rabbit, count, workers, prefetch),
        partial(_share, classes, session.kafka, count, workers, prefetch),
    ]
    name = f"queue/{workers}-workers/prefetch-{prefetch}"
    title = f"queue: {workers} worker{'' if workers == 1 else 's'}, prefetch {prefetch}"
    ours, theirs, kafkas = session.bench.take_turns(title, session.bench.pick(5, 1), *sides)
    demand = Demand("ratio", "least", 1.0) if prefetch == PREFETCH else None
    return [
        against_kafka(name, f"{title}, beside RabbitMQ", "messages/s", ours, theirs, demand, baseline=RABBITMQ.name),
        against_kafka(f"{name}/kafka", f"{title}, beside Kafka", "messages/s", ours, kafkas, baseline=KAFKA),
    ]


def _share(classes: Path, peer: Peer, count: int, workers: int, prefetch: int) -> float:
    group = f"queue-{secrets.token_hex(4)}"
    cluster = Cluster(ClientOptions.from_properties({"bootstrap.servers": peer.broker.bootstrap}))
    alter_group_configs(cluster, group, _CONFIGS)
    cluster.close()
    with peer.topic(group) as topic:
        tools.c_produce(peer.broker, topic, SIZE, count, "none")
        return _rate(classes, "share", peer.broker.port, topic, count, workers, prefetch, group)


def _rabbitmq(classes: Path, rabbit: Running, count: int, workers: int, prefetch: int) -> float:
    queue = f"queue-{secrets.token_hex(4)}"
    _run(classes, "fill", rabbit.port, queue, count, SIZE)
    return _rate(classes, "rabbitmq", rabbit.port, queue, count, workers, prefetch)


def _rate(classes: Path, *words: object) -> float:
    done = _run(classes, *words)
    return float(done["messages"]) / float(done["seconds"])


def _run(classes: Path, *words: object) -> dict[str, float]:
    path = f"{classes}:{_jars()}/*:{kafka.jars()}/*"
    command = ["java", "-Xmx512m", "-cp", path, _PROGRAM.stem, *map(str, words)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def _compiled() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{_jars()}/*:{kafka.jars()}/*"
        subprocess.run(["javac", "-proc:none", "-d", directory, "-cp", path, str(_PROGRAM)], check=True)
        yield Path(directory)


def _jars() -> Path:
    return others.home() / "jars"
