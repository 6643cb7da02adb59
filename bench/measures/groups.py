"""Many groups, and a large one: what heartbeats cost, how long a rebalance takes, and what a producer notices of it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import round_trips
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

GROUPS, MEMBERS, LARGE = 1000, 3, 500
HEARTBEAT_S = 3  # the clients' default


class MemberProcess:
    """`bench.programs.members`, which see."""

    def __init__(self, broker: BrokerProcess, groups: int, members: int, protocol: str) -> None:
        command = [sys.executable, "-m", "bench.programs.members", broker.host, str(broker.port)]
        self._process = subprocess.Popen(
            [*command, str(groups), str(members), str(HEARTBEAT_S), protocol],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_stable(self) -> float:
        assert self._process.stdout is not None
        word, seconds = self._process.stdout.readline().split()
        assert word == "stable"
        return float(seconds)

    def moved(self) -> int:
        """How many partitions have moved between members that stayed, after one has left."""
        assert self._process.stdout is not None
        word, count = self._process.stdout.readline().split()
        assert word == "moved"
        return int(count)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        self.tell("end")
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def members(broker: BrokerProcess, groups: int, size: int, protocol: str = "classic") -> Iterator[MemberProcess]:
    process = MemberProcess(broker, groups, size, protocol)
    try:
        yield process
    finally:
        process.close()


def heartbeats(bench: Bench) -> list[Figure]:
    """A thousand groups of three that are stable: memory, processor time, and whether every heartbeat is answered; of
    the consumer protocol (KIP-848), and beside it of the classic one.
    """
    measured: dict[str, list[dict[str, float]]] = {"consumer": [], "classic": []}
    for _ in range(bench.pick(3, 1)):
        for protocol, found in measured.items():
            found.append(_heartbeats(bench, protocol))

    def samples(name: str) -> tuple[list[float], list[float]]:
        return [one[name] for one in measured["consumer"]], [one[name] for one in measured["classic"]]

    title = f"{GROUPS} groups of {MEMBERS}"
    beats = f"{title}: {GROUPS * MEMBERS // HEARTBEAT_S} heartbeats/s"
    memory, cpu = Demand("ratio", "most", 1.5), Demand("ratio", "most", 1.2)
    classic = "the classic protocol"
    return [
        compare("groups/joined", f"{title}: until all are stable", "s", *samples("joined"), classic),
        compare(
            "groups/memory",
            f"{title}, and their connections: memory",
            "MB",
            *samples("memory"),
            classic,
            demanded=memory,
        ),
        compare("groups/cpu", beats, "% of a core", *samples("cpu"), classic, demanded=cpu),
        *[compare(f"groups/{p}", f"{title}: a heartbeat: {p}", "ms", *samples(p), classic) for p in ("p50", "p99")],
    ]


def _heartbeats(bench: Bench, protocol: str) -> dict[str, float]:
    seconds = bench.pick(20, 8)
    with bench.place.directory() as data, broker_process(data) as broker:
        _create_live(broker, MEMBERS)
        before = broker.memory_bytes()
        with members(broker, GROUPS, MEMBERS, protocol) as process:
            bench.tell(f"{GROUPS} {protocol} groups of {MEMBERS}")
            joined = process.wait_until_stable()
            time.sleep(HEARTBEAT_S)
            memory, cpu, start = broker.memory_bytes() - before, broker.cpu_seconds(), time.perf_counter()
            time.sleep(seconds)
            share = 100 * (broker.cpu_seconds() - cpu) / (time.perf_counter() - start)
            done = process.end()
    assert not done["refused"], done
    return {"joined": joined, "memory": memory / 1e6, "cpu": share, **done}


def _create_live(broker: BrokerProcess, partitions: int) -> None:
    with RawConnection(broker.host, broker.port) as connection:
        topic = CreatableTopic(name="live", num_partitions=partitions, replication_factor=1)
        answer = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 5)
        assert not answer.topics[0].error_code


def large_group(bench: Bench) -> list[Figure]:
    """Five hundred members come, and then one leaves: the others learn of it with their next heartbeat."""
    came: dict[str, list[float]] = {"consumer": [], "classic": []}
    left: dict[str, list[float]] = {"consumer": [], "classic": []}
    moved: list[float] = []
    for protocol in came:
        with (
            bench.place.directory() as data,
            broker_process(data) as broker,
            members(broker, 1, LARGE, protocol) as process,
        ):
            _create_live(broker, LARGE)
            bench.tell(f"a {protocol} group of {LARGE}")
            came[protocol].append(process.wait_until_stable())
            for _ in range(bench.pick(5, 2)):
                process.tell("leave")
                left[protocol].append(process.wait_until_stable())
                count = process.moved()
                moved += [count] if protocol == "consumer" else []
            done = process.end()
        assert not done["refused"], done
    classic = "the classic protocol"
    return [
        compare(
            "large/came", f"{LARGE} members come, and are stable after", "s", came["consumer"], came["classic"], classic
        ),
        compare(
            "large/left",
            f"one of {LARGE} leaves, and the others are stable after",
            "s",
            left["consumer"],
            left["classic"],
            classic,
        ),
        Figure("large/moved", f"… partitions that members lose which stay, of {LARGE}", "", Sample.of(moved)),
    ]


def producer_beside(bench: Bench) -> list[Figure]:
    """`acks=1` round trips of a producer, with and without all these groups, one of which rebalances all the time."""
    return [_producer_beside(bench, protocol) for protocol in ("classic", "consumer")]


def _producer_beside(bench: Bench, protocol: str) -> Figure:
    number = bench.pick(3000, 1000)
    alone, beside = [], []
    with (
        bench.place.directory() as data,
        broker_process(data) as broker,
        RawConnection(broker.host, broker.port) as connection,
    ):
        _create_live(broker, LARGE)
        for _ in range(bench.pick(4, 2)):
            alone.append(_p99(connection, number))
            with (
                members(broker, GROUPS, MEMBERS, protocol) as many,
                members(broker, 1, LARGE, protocol) as large,
            ):
                bench.tell(f"a producer beside {protocol} groups")
                many.wait_until_stable()
                large.wait_until_stable()
                large.tell("leave")
                beside.append(_p99(connection, number))
            time.sleep(1)
    title = f"acks=1 p99 beside {GROUPS} {protocol} groups of {MEMBERS} and one of {LARGE} that rebalances"
    demanded = Demand("ratio", "most", 2)
    name = "groups/producer" if protocol == "classic" else "groups/producer_consumer"
    return compare(name, title, "µs", beside, alone, "without them", demanded=demanded)


def _p99(connection: RawConnection, number: int) -> float:
    return 1e6 * percentile(round_trips(connection, "live", 1, number), 99)
