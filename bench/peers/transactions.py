"""Transactions: how many one producer commits in a second, and what many of them cost everybody else."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

from bench.harness.measure import Demand, Figure, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import MB, open_topic, round_trips
from bench.harness.transactions import commits_per_second
from bench.peers import tools
from bench.peers.session import KAFKA, KAFKA_SYNCING, Peer, Session, against_kafka

MESSAGES = 100  # in a transaction
PRODUCERS = 32
RATES = (300, 1000)  # transactions per second


def transactions(session: Session) -> Iterator[Figure]:
    yield from _commits(session)
    yield from _beside(session)
    yield from _consumers(session)


def _commits(session: Session) -> list[Figure]:
    """One producer, one request at a time."""
    number = session.bench.pick(300, 30)
    sides = [partial(_one_producer, peer, number) for peer in (session.ours, session.kafka, session.kafka_syncing)]
    rounds = session.bench.pick(5, 2)
    ours, kafka, syncing = session.bench.take_turns("transactions", rounds, *sides)
    title = f"transactions of {MESSAGES} messages, one in flight"
    return [
        against_kafka("transactions/synced", f"{title}: both with an fsync", "/s", ours, syncing,
                      Demand("ratio", "least", 1.0), baseline=KAFKA_SYNCING),
        against_kafka("transactions/commits", f"{title}: ours with fsync, Kafka without", "/s", ours, kafka,
                      Demand("ratio", "least", 0.5), baseline=KAFKA),
    ]  # fmt: skip


def _one_producer(peer: Peer, number: int) -> float:
    with RawConnection(peer.broker.host, peer.broker.port) as connection:
        open_topic(connection, "transactions")
    return commits_per_second(peer.broker.host, peer.broker.port, "bench", "transactions", MESSAGES, number)


def _beside(session: Session) -> list[Figure]:
    """`acks=1` of an ordinary producer, beside transactions and without them, on ours."""
    peer, number = session.ours, session.bench.pick(2000, 200)

    def alone() -> list[float]:
        return _ack_times(peer, number)

    figures = []
    for rate in RATES:
        rates: list[float] = []

        def beside(rate: int = rate, rates: list[float] = rates) -> list[float]:
            with _producers(peer, rate, rates):
                return _ack_times(peer, number)

        times, base = session.bench.take_turns(f"acks=1 beside {rate}/s", session.bench.pick(5, 2), beside, alone)
        figures.append(
            compare(
                f"transactions/beside-{rate}/p99",
                f"acks=1 p99 beside {rate} transactions/s of {PRODUCERS} producers",
                "µs",
                [1e6 * percentile(one, 99) for one in times],
                [1e6 * percentile(one, 99) for one in base],
                "ours without them",
                demanded=Demand("ratio", "most", 2.0) if rate == RATES[0] else None,
                note=_done(rates),
            )
        )
    return figures


def _consumers(session: Session) -> list[Figure]:
    """A plain consumer of another topic, beside 100 transactions a second, on ours."""
    peer, size = session.ours, 1000
    count = session.bench.pick(100, 10) * MB // size
    rates: list[float] = []
    with peer.topic("beside-transactions") as topic:
        tools.c_produce(peer.broker, topic, size, count, "none")

        def alone() -> float:
            return tools.c_consume(peer.broker, topic, size, count).messages_per_second

        def beside() -> float:
            with _producers(peer, 100, rates):
                return alone()

        ours, base = session.bench.take_turns("consumer beside", session.bench.pick(5, 2), beside, alone)
    return [
        compare(
            "transactions/consumer",
            "a consumer beside 100 transactions/s",
            "messages/s",
            ours,
            base,
            "ours without them",
            demanded=Demand("ratio", "least", 0.8),
            note=_done(rates),
        )
    ]


@contextmanager
def _producers(peer: Peer, rate: int, rates: list[float]) -> Iterator[None]:
    """While they run; on return, `rates` has how many transactions there were in a second."""
    with peer.topic("many-transactions", PRODUCERS) as topic:
        where = [peer.broker.host, str(peer.broker.port), topic, str(PRODUCERS), str(rate)]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.programs.transact", *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "started\n":
                raise RuntimeError("the transactional producers did not start")
            yield
            said, _ = process.communicate(timeout=60)
            rates.append(float(said))
        finally:
            process.kill()
            process.communicate()


def _done(rates: list[float]) -> str:
    return f"{median(rates):.0f} transactions/s were done"


def _ack_times(peer: Peer, number: int) -> list[float]:
    with RawConnection(peer.broker.host, peer.broker.port) as connection:
        open_topic(connection, "beside")
        return round_trips(connection, "beside", 1, number)
