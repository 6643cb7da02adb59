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
from bench.harness.requests import create_topic, round_trips

GROUPS, MEMBERS, LARGE = 1000, 3, 500
HEARTBEAT_S = 3  # the clients' default


class MemberProcess:
    """`bench.programs.members`, which see."""

    def __init__(self, broker: BrokerProcess, groups: int, members: int) -> None:
        command = [sys.executable, "-m", "bench.programs.members", broker.host, str(broker.port)]
        self._process = subprocess.Popen(
            [*command, str(groups), str(members), str(HEARTBEAT_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_stable(self) -> float:
        assert self._process.stdout is not None
        word, seconds = self._process.stdout.readline().split()
        assert word == "stable"
        return float(seconds)

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
def members(broker: BrokerProcess, groups: int, size: int) -> Iterator[MemberProcess]:
    process = MemberProcess(broker, groups, size)
    try:
        yield process
    finally:
        process.close()


def heartbeats(bench: Bench) -> list[Figure]:
    """A thousand groups of three that are stable: memory, processor time, and whether every heartbeat is answered."""
    seconds = bench.pick(20, 8)
    with bench.place.directory() as data, broker_process(data) as broker:
        before = broker.memory_bytes()
        with members(broker, GROUPS, MEMBERS) as process:
            bench.tell(f"{GROUPS} groups of {MEMBERS}")
            joined = process.wait_until_stable()
            time.sleep(HEARTBEAT_S)
            memory, cpu, start = broker.memory_bytes() - before, broker.cpu_seconds(), time.perf_counter()
            time.sleep(seconds)
            share = 100 * (broker.cpu_seconds() - cpu) / (time.perf_counter() - start)
            done = process.end()
    assert not done["refused"], done
    title = f"{GROUPS} groups of {MEMBERS}"
    return [
        Figure("groups/joined", f"{title}: until all are stable", "s", Sample.of([joined])),
        Figure("groups/memory", f"{title}, and their connections: memory", "MB", Sample.of([memory / 1e6])),
        Figure(
            "groups/cpu", f"{title}: {GROUPS * MEMBERS // HEARTBEAT_S} heartbeats/s", "% of a core", Sample.of([share])
        ),
        *[Figure(f"groups/{p}", f"{title}: a heartbeat: {p}", "ms", Sample.of([done[p]])) for p in ("p50", "p99")],
    ]


def large_group(bench: Bench) -> list[Figure]:
    """Five hundred members come, and then one leaves: the others learn of it with their next heartbeat."""
    with bench.place.directory() as data, broker_process(data) as broker, members(broker, 1, LARGE) as process:
        bench.tell(f"a group of {LARGE}")
        came = process.wait_until_stable()
        left = []
        for _ in range(bench.pick(5, 2)):
            process.tell("leave")
            left.append(process.wait_until_stable())
        done = process.end()
    assert not done["refused"], done
    return [
        Figure("large/came", f"{LARGE} members come, and are stable after", "s", Sample.of([came])),
        Figure("large/left", f"one of {LARGE} leaves, and the others are stable after", "s", Sample.of(left)),
    ]


def producer_beside(bench: Bench) -> list[Figure]:
    """`acks=1` round trips of a producer, with and without all these groups, one of which rebalances all the time."""
    number = bench.pick(3000, 1000)
    alone, beside = [], []
    with (
        bench.place.directory() as data,
        broker_process(data) as broker,
        RawConnection(broker.host, broker.port) as connection,
    ):
        create_topic(connection, "live")
        for _ in range(bench.pick(4, 2)):
            alone.append(_p99(connection, number))
            with members(broker, GROUPS, MEMBERS) as many, members(broker, 1, LARGE) as large:
                bench.tell("a producer beside groups")
                many.wait_until_stable()
                large.wait_until_stable()
                large.tell("leave")
                beside.append(_p99(connection, number))
            time.sleep(1)
    title = f"acks=1 p99 beside {GROUPS} groups of {MEMBERS} and one of {LARGE} that rebalances"
    demanded = Demand("ratio", "most", 2)
    return [compare("groups/producer", title, "µs", beside, alone, "without them", demanded=demanded)]


def _p99(connection: RawConnection, number: int) -> float:
    return 1e6 * percentile(round_trips(connection, "live", 1, number), 99)
