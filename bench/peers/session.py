"""The brokers of a run, side by side: ours, Kafka with its defaults, and Kafka with an fsync for each message.

Each is started and warmed, all in the same way, when a measure first asks for it, and stays up until the run ends, on
the same disk. Load is on one of them at a time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from bench.harness.bare_disk import bare_writes
from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Demand, Figure, compare
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import open_topic, round_trips
from bench.harness.topics import delete_topic, make_topic
from bench.measures.consumers import wake_times
from bench.peers import kafka, tools
from bench.programs.watch import Watch

MB = 1 << 20
KAFKA = "Kafka"
KAFKA_SYNCING = "Kafka, fsync each"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    broker: BrokerProcess
    logs: Path  # where the directories of partitions are
    idle_bytes: int  # of memory, after its first acknowledged message
    watch: Watch

    @contextmanager
    def topic(self, name: str, partitions: int = 1) -> Iterator[str]:
        """Yields a new one. It is deleted at the end, and its data leave the disk soon."""
        make_topic(self.broker.bootstrap, name, partitions)
        try:
            yield name
        finally:
            delete_topic(self.broker.bootstrap, name)


class Session:
    """What a measure is given. `full` asks for the whole matrix, `bench.quick` for little of all."""

    def __init__(self, bench: Bench, stack: ExitStack, *, full: bool = False) -> None:
        self.bench = bench
        self.full = full
        self._stack = stack

    @cached_property
    def ours(self) -> Peer:
        data = self._stack.enter_context(self.bench.place.directory())
        return self._up("tailrace", self._stack.enter_context(broker_process(data)), Path(data))

    @cached_property
    def kafka(self) -> Peer:
        return self._kafka(KAFKA, {})

    @cached_property
    def kafka_syncing(self) -> Peer:
        return self._kafka(KAFKA_SYNCING, kafka.SYNCING)

    def _kafka(self, name: str, settings: dict[str, str]) -> Peer:
        if reason := kafka.missing():
            raise RuntimeError(reason)
        self.bench.tell(f"{name} starts")
        directory = Path(self._stack.enter_context(self.bench.place.directory()))
        return self._up(name, self._stack.enter_context(kafka.kafka_process(directory, settings)), directory / "data")

    def _up(self, name: str, broker: BrokerProcess, logs: Path) -> Peer:
        with RawConnection(broker.host, broker.port) as connection:
            open_topic(connection, "warm")
            round_trips(connection, "warm", -1, 1)
        watch = Watch(broker.process.pid)
        self._stack.callback(watch.close)
        peer = Peer(name, broker, logs, broker.memory_bytes(), watch)
        self._warm(peer)
        return peer

    def _warm(self, peer: Peer) -> None:
        """What the measures do, in small: a virtual machine has to compile what it runs often."""
        self.bench.tell(f"{peer.name} is warmed")
        broker = peer.broker
        with peer.topic("warm-load") as topic, RawConnection(broker.host, broker.port) as connection:
            for size in (100, 1000, 10_000):
                tools.c_produce(broker, topic, size, self.bench.pick(200, 20) * MB // size, "none")
            tools.c_consume(broker, topic, 1000, 0)
            for acks in (1, -1):
                round_trips(connection, "warm", acks, self.bench.pick(5000, 500))
            wake_times(broker, "warm-wake", -1, self.bench.pick(1000, 100))

    def ready_memory(self, size: int) -> None:
        """Touches as much memory as will be written, so that no side pays for what the host has yet to give."""
        bare_writes(self.bench, size)

    def versus(
        self,
        what: str,
        rounds: int,
        work: Callable[[Peer], Value],
        *,
        warm_up: int = 1,
        is_clear: Callable[[list[list[Value]]], bool] = lambda values: True,
    ) -> tuple[list[Value], list[Value]]:
        """The same work on ours and on Kafka, in turns."""
        sides = [partial(work, peer) for peer in (self.ours, self.kafka)]
        ours, theirs = self.bench.take_turns(what, rounds, *sides, warm_up=warm_up, is_clear=is_clear)
        return ours, theirs


def against_kafka(
    name: str,
    title: str,
    unit: str,
    ours: list[float],
    theirs: list[float],
    demanded: Demand | None = None,
    *,
    baseline: str = KAFKA,
    note: str = "",
) -> Figure:
    return compare(name, title, unit, ours, theirs, baseline, demanded=demanded, note=note)


def is_full() -> bool:
    return os.environ.get("FULL", "") not in ("", "0")
