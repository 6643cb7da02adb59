"""Producing and consuming as fast as the client can, and what that costs the broker: by three clients, with messages of
three sizes, in one partition and in twelve, with and without compression.

Producers have their default acks, which is `all`: ours syncs before it acknowledges, Kafka does not. What that is worth
is shown where it is worth most: the same where neither does.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from bench.harness import process_tree
from bench.harness.broker_process import BrokerProcess
from bench.harness.measure import Demand, Figure, compare, is_clear
from bench.peers import tools
from bench.peers.session import MB, Peer, Session, against_kafka
from bench.peers.tools import GB, Done
from bench.programs import echo
from bench.programs.load import payload

SIZES = (100, 1000, 10_000)
RATE = Demand("ratio", "least", 0.97, aim=1.0)
CPU_IN = {100: Demand("ratio", "most", 0.25, aim=0.1), 1000: Demand("ratio", "most", 0.25, aim=0.1)}
CPU_OUT = {1000: Demand("ratio", "most", 0.6, aim=0.3)}
CLIENTS = {"c": "C client", "java": "Java client", "kcat": "kcat"}


@dataclass(frozen=True, slots=True)
class Case:
    client: str
    size: int
    partitions: int = 1
    compression: str = "none"

    @property
    def name(self) -> str:
        return f"{self.client}/{self.size}/{self.partitions}/{self.compression}"

    @property
    def title(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} KB"
        more = f", {self.partitions} partitions" if self.partitions > 1 else ""
        codec = f", {self.compression}" if self.compression != "none" else ""
        return f"{size}{more}{codec}, {CLIENTS[self.client]}"

    @property
    def is_plain(self) -> bool:
        return self.client == "c" and self.partitions == 1 and self.compression == "none"


QUICK = (Case("c", 100), Case("c", 1000), Case("java", 1000), Case("kcat", 1000))
USUAL = (
    *(Case("c", size) for size in SIZES),
    *(Case("java", size) for size in SIZES),
    Case("kcat", 1000),
    Case("c", 1000, 12),
    Case("c", 1000, 1, "lz4"),
    Case("c", 1000, 1, "zstd"),
)
LEAST = {  # by what `echo` does: the name of the figure, and what it is
    "store": ("floor-at-rate", "a bare loop that receives, sums and writes at that rate"),
    "store-synced": ("floor-synced", "the same, which has it synced"),
}
UNSYNCED = (Case("c", 100), Case("java", 10_000))
FULL = tuple(
    Case(client, size, partitions, compression)
    for client, size, partitions, compression in product(CLIENTS, SIZES, (1, 12), ("none", "lz4", "zstd"))
)


def cases(session: Session) -> Iterator[Case]:
    chosen = FULL if session.full else QUICK if session.bench.quick else USUAL
    return (case for case in chosen if case.client != "kcat" or tools.kcat_missing() is None)


def produce(session: Session) -> Iterator[Figure]:
    for case in cases(session):
        yield from _produce(session, case)


def _produce(session: Session, case: Case) -> list[Figure]:
    volume = session.bench.pick(300, 20) * MB
    topic, title = f"produce-{case.name}".replace("/", "-"), f"produce {case.title}"
    with ExitStack() as stack:
        run = _producer(session, stack, case, volume // case.size)
        for peer in (session.ours, session.kafka):
            stack.enter_context(peer.topic(topic, case.partitions))

        def once(peer: Peer) -> Done:
            return _with_kernel(lambda: run(peer, topic), volume, session)

        ours, theirs = session.versus(title, session.bench.pick(5, 2), once, warm_up=0, is_clear=_is_clear)
    figures = _figures(f"produce/{case.name}", title, case, ours, theirs, CPU_IN)
    if case.is_plain and process_tree.kernel_cpu_seconds() is not None:
        costs = [[done.broker_cpu_per_gb + done.kernel_cpu_per_gb for done in side] for side in (ours, theirs)]
        title = f"CPU of the broker and of the kernel's threads, {title}"
        figures.append(against_kafka(f"cpu-in/{case.name}/kernel", title, "s/GB", costs[0], costs[1]))
    if case.is_plain and case.size in CPU_IN:
        figures += _least(session, case, volume, theirs)
    return figures


def _least(session: Session, case: Case, volume: int, theirs: list[Done]) -> list[Figure]:
    """What a loop takes that does no more than no broker can do without, as fast as the client was, against Kafka."""
    file = Path(session.bench.place.path, "stored")
    costs: dict[str, list[float]] = {"store": []}
    if echo.can_hand_over_syncs():
        costs["store-synced"] = []
    for done in theirs:
        for how, taken in costs.items():
            session.ready_memory(volume)
            taken.append(echo.stored(volume, file, done.messages_per_second * case.size, how))
    kafka = [done.broker_cpu_per_gb for done in theirs]
    figures = []
    for how, taken in costs.items():
        name, what = LEAST[how]
        title = f"the least: {what}, beside {case.title}"
        figures.append(against_kafka(f"cpu-in/{case.name}/{name}", title, "s/GB", taken, kafka))
    return figures


def _with_kernel(work: Callable[[], Done], volume: int, session: Session) -> Done:
    """Ours is synced before it is acknowledged, Kafka's whenever the kernel likes: both are charged for all of it."""
    os.sync()
    session.ready_memory(volume * 3 // 2)  # the last thing: the system gives back what is not used for a moment
    before = process_tree.kernel_cpu_seconds()
    done = work()
    os.sync()
    after = process_tree.kernel_cpu_seconds()
    return (
        done if before is None or after is None else replace(done, kernel_cpu_per_gb=(after - before) / (volume / GB))
    )


def unsynced(session: Session) -> Iterator[Figure]:
    """What neither brings to disk before it acknowledges it. Nothing is demanded of it."""
    for case in UNSYNCED:
        yield from _unsynced(session, case)


def _unsynced(session: Session, case: Case) -> list[Figure]:
    volume = session.bench.pick(300, 20) * MB
    topic, title = f"unsynced-{case.name}".replace("/", "-"), f"produce {case.title}, acks=1 on both"
    work = tools.java_produce if case.client == "java" else tools.c_produce

    def once(peer: Peer) -> Done:
        session.ready_memory(volume * 3 // 2)
        return work(peer.broker, topic, case.size, volume // case.size, case.compression, "1")

    with session.ours.topic(topic), session.kafka.topic(topic):
        ours, theirs = session.versus(title, session.bench.pick(5, 2), once, warm_up=0)
    rates = [[done.messages_per_second for done in side] for side in (ours, theirs)]
    costs = [[done.broker_cpu_per_gb for done in side] for side in (ours, theirs)]
    return [
        against_kafka(f"unsynced/{case.name}", title, "messages/s", rates[0], rates[1]),
        against_kafka(f"cpu-in/unsynced/{case.name}", f"broker CPU, {title}", "s/GB", costs[0], costs[1]),
    ]


def _producer(session: Session, stack: ExitStack, case: Case, count: int) -> Callable[[Peer, str], Done]:
    if case.client == "kcat":
        lines = Path(stack.enter_context(session.bench.place.directory()))
        lines.write_bytes(b"".join(payload(case.size) + b"\n" for _ in range(count)))
        return lambda peer, topic: tools.kcat_produce(peer.broker, topic, case.size, count, case.compression, lines)
    work = tools.java_produce if case.client == "java" else tools.c_produce
    return lambda peer, topic: work(peer.broker, topic, case.size, count, case.compression)


_CONSUMERS: dict[str, Callable[[BrokerProcess, str, int, int], Done]] = {
    "c": tools.c_consume,
    "java": tools.java_consume,
    "kcat": tools.kcat_consume,
}


def consume(session: Session) -> Iterator[Figure]:
    for case in cases(session):
        yield from _consume(session, case)


def _consume(session: Session, case: Case) -> list[Figure]:
    count = session.bench.pick(400, 20) * MB // case.size
    topic, title = f"consume-{case.name}".replace("/", "-"), f"consume {case.title}"
    with ExitStack() as stack:
        for peer in (session.ours, session.kafka):
            stack.enter_context(peer.topic(topic, case.partitions))
            session.bench.tell(f"{title}: {peer.name} is filled")
            tools.c_produce(peer.broker, topic, case.size, count, case.compression)

        def once(peer: Peer) -> Done:
            return _CONSUMERS[case.client](peer.broker, topic, case.size, count)

        # Half a second each, but for Java's, whose start alone takes longer: what disturbs one round is much of it.
        rounds = session.bench.pick(5 if case.client == "java" else 15, 2)
        ours, theirs = session.versus(title, rounds, once, warm_up=0, is_clear=_is_clear)
    figures = _figures(f"consume/{case.name}", title, case, ours, theirs, CPU_OUT)
    return figures + _least_out(session, case, theirs) if case.is_plain and case.size in CPU_OUT else figures


def _least_out(session: Session, case: Case, theirs: list[Done]) -> list[Figure]:
    """The same as `_least`, for a GB out."""
    file, volume = Path(session.bench.place.path, "history"), session.bench.pick(400, 20) * MB
    taken = [echo.sent(volume, file, done.messages_per_second * case.size) for done in theirs]
    title = f"the least: a bare loop that sends a file by the megabyte at that rate, beside {case.title}"
    kafka = [done.broker_cpu_per_gb for done in theirs]
    return [against_kafka(f"cpu-out/{case.name}/floor", title, "s/GB", taken, kafka)]


def _is_clear(sides: list[list[Done]]) -> bool:
    ours, theirs = ([done.messages_per_second for done in side] for side in sides)
    return is_clear(RATE, ours, theirs)


def _figures(
    name: str, title: str, case: Case, ours: list[Done], theirs: list[Done], cpu: dict[int, Demand]
) -> list[Figure]:
    """CPU is judged where the C client has one partition and no compression, and shown elsewhere."""
    demanded = cpu.get(case.size) if case.is_plain else None
    rates = [[done.messages_per_second for done in side] for side in (ours, theirs)]
    costs = [[done.broker_cpu_per_gb for done in side] for side in (ours, theirs)]
    way = "in" if name.startswith("produce") else "out"
    return [
        against_kafka(name, title, "messages/s", rates[0], rates[1], RATE),
        against_kafka(f"cpu-{way}/{case.name}", f"broker CPU, {title}", "s/GB", costs[0], costs[1], demanded),
    ]


def syncing(session: Session) -> list[Figure]:
    """Ours, with an fsync before each acknowledgement and without."""
    size, volume = 1000, session.bench.pick(400, 20) * MB

    def rate(topic: str, acks: str) -> float:
        session.ready_memory(volume)
        broker = session.ours.broker
        return tools.c_produce(broker, topic, size, volume // size, "none", acks).messages_per_second

    with session.ours.topic("synced") as synced, session.ours.topic("unsynced") as unsynced:
        sides = partial(rate, synced, "all"), partial(rate, unsynced, "1")
        title = "produce 1 KB, fsync before ack"
        ours, without = session.bench.take_turns(title, session.bench.pick(7, 2), *sides)
    least = Demand("ratio", "least", 0.8, aim=0.95)
    return [compare("sync/1000", title, "messages/s", ours, without, "ours, acks=1", demanded=least)]
