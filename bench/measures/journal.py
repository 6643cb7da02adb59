"""What the journal is worth: acknowledgements with `acks=all` of clients that write to partitions of their own, each
with one batch in flight, with a journal and with an fsync for each partition.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Figure, compare
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import open_topic, produce_frame

NONE = ("--set", "tailrace.journal.bytes=0")
ALL = -1
MADE_S = 1.5  # from the first small flushes to a journal that is in use


class Clients(NamedTuple):
    broker: BrokerProcess
    connections: list[RawConnection]
    frames: list[bytes]

    def ask_all(self, times: int) -> None:
        for _ in range(times):
            for connection, frame in zip(self.connections, self.frames, strict=True):
                connection.send_frame(frame)
            for connection in self.connections:
                connection.receive_frame()


class Pace(NamedTuple):
    per_second: float
    cpu_us: float  # of the broker, for each


def journal(bench: Bench) -> list[Figure]:
    return [figure for partitions in (1, 12, 100) for figure in _figures(bench, partitions)]


def _figures(bench: Bench, partitions: int) -> list[Figure]:
    times = max(10, bench.pick(8000, 2000) // partitions)
    with _clients(bench, partitions) as with_one, _clients(bench, partitions, *NONE) as without:
        sides = [partial(_measure, clients, times) for clients in (with_one, without)]
        ours, against = bench.take_turns(f"journal, {partitions} partitions", bench.pick(6, 3), *sides)
    title = f"acks=all to {partitions} partition{'s' if partitions > 1 else ''}"
    baseline = "no journal"
    return [
        compare(
            f"journal/{partitions}/rate", f"{title}: acknowledged a second", "1/s",
            [one.per_second for one in ours], [one.per_second for one in against], baseline,
        ),
        compare(
            f"journal/{partitions}/cpu", f"{title}: CPU of the broker, each", "µs",
            [one.cpu_us for one in ours], [one.cpu_us for one in against], baseline,
        ),
    ]  # fmt: skip


@contextmanager
def _clients(bench: Bench, partitions: int, *options: str) -> Iterator[Clients]:
    with ExitStack() as stack:
        broker = stack.enter_context(broker_process(stack.enter_context(bench.place.directory()), *options))
        connections, frames = [], []
        for number in range(partitions):
            connections.append(stack.enter_context(RawConnection(broker.host, broker.port)))
            open_topic(connections[-1], f"topic-{number}")
            frames.append(produce_frame(f"topic-{number}", ALL))
        clients = Clients(broker, connections, frames)
        clients.ask_all(max(2, 40 // partitions))
        time.sleep(MADE_S)
        yield clients


def _measure(clients: Clients, times: int) -> Pace:
    cpu, start = clients.broker.cpu_seconds(), time.perf_counter()
    clients.ask_all(times)
    seconds, count = time.perf_counter() - start, times * len(clients.connections)
    return Pace(count / seconds, 1e6 * (clients.broker.cpu_seconds() - cpu) / count)
