"""The monitor beside the broker: what it takes with nothing to watch, and with 100,000 committed offsets.

Of the crowd, one topic in a hundred is written to, and its groups follow: 1 % of the groups move in each interval.
"Without it" is the same broker with the monitor's process stopped (SIGSTOP), so that both sides have the same groups.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.harness import process_tree
from bench.harness.batches import batch_of
from bench.harness.broker_process import BrokerProcess, broker_process, child_of, environment
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import FETCH_VERSION, create_topic, round_trips
from bench.harness.topics import make_topic
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TOPICS, GROUPS, PARTITIONS = 100, 10_000, 10
GROUPS_OF_A_TOPIC = GROUPS // TOPICS
INTERVAL_S = 15  # the default of tailrace.monitor.interval.ms
MEMORY_MB_MAX = 45
_COMMIT_VERSION, _PRODUCE_VERSION = 8, 9
_COMMITS_AT_ONCE = 100  # in flight


def idle(bench: Bench) -> list[Figure]:
    """A broker with nothing on it."""
    seconds = INTERVAL_S * bench.pick(8, 2)
    with bench.place.directory() as data, broker_process(data, monitor=True) as broker:
        pid = monitor_of(broker)
        bench.tell("the monitor with nothing to watch")
        time.sleep(INTERVAL_S)  # its start is no work of every interval
        share = _share(pid, seconds)
        memory = process_tree.memory_bytes(pid) / 1e6
    title = "the monitor with nothing to watch"
    return [
        Figure(
            "monitor/idle/memory", f"{title}: memory", "MB", Sample.of([memory]),
            demanded=Demand("ours", "most", MEMORY_MB_MAX),
        ),
        Figure(
            "monitor/idle/cpu", f"{title}: CPU", "% of a core", Sample.of([share]),
            demanded=Demand("ours", "most", 0.5),
        ),
    ]  # fmt: skip


def first_ack(bench: Bench) -> list[Figure]:
    """From the start of the process to the first acknowledged message, with a monitor and without."""
    sides = partial(_first_ack_s, bench, True), partial(_first_ack_s, bench, False)
    with_it, without = bench.take_turns("start with a monitor", bench.pick(25, 2), *sides)
    title = "start to the first acknowledged message, with a monitor"
    demanded = Demand("ratio", "most", 1.1)
    return [compare("monitor/start", title, "s", with_it, without, "without it", demanded=demanded)]


def _first_ack_s(bench: Bench, monitor: bool) -> float:
    with bench.place.directory() as data:
        begun = time.perf_counter()
        with (
            broker_process(data, monitor=monitor) as broker,
            RawConnection(broker.host, broker.port) as connection,
        ):
            create_topic(connection, "live")
            round_trips(connection, "live", -1, 1)
            return time.perf_counter() - begun


def crowd(bench: Bench) -> list[Figure]:
    """10,000 groups of 10 partitions that have read all: the monitor's CPU, how long `tailrace lag` takes, and a
    producer's p99.
    """
    return _crowd(bench, "crowd", "that have read all", behind=0)


def crowd_behind(bench: Bench) -> list[Figure]:
    """The same with groups that all have something to read."""
    return _crowd(bench, "crowd-behind", "that are behind", behind=1)


def _crowd(bench: Bench, name: str, which: str, behind: int) -> list[Figure]:
    with (
        bench.place.directory() as data,
        broker_process(data, monitor=True) as broker,
        RawConnection(broker.host, broker.port) as connection,
    ):
        pid = monitor_of(broker)
        bench.tell(f"{GROUPS} groups commit")
        make_crowd(broker, connection, behind)
        create_topic(connection, "live")
        time.sleep(2 * INTERVAL_S)
        shares = [_moving_share(bench, connection, pid, turn) for turn in range(bench.pick(5, 1))]
        memory = process_tree.memory_bytes(pid) / 1e6
        table, everything, one_group = bench.take_turns(
            "tailrace lag", bench.pick(5, 1), partial(_lag_s, broker), partial(_json_s, broker),
            partial(_json_s, broker, group_name(0, 0)),
        )  # fmt: skip
        sides = partial(_p99_beside, connection, pid), partial(_p99_alone, connection, pid)
        beside, alone = bench.take_turns("a producer beside the monitor", bench.pick(5, 1), *sides)
    title = f"the monitor, {GROUPS} groups of {PARTITIONS} partitions {which}, of which 1 % move"
    producer = f"acks=1 {{}} beside {title}"
    return [
        Figure(
            f"monitor/{name}/cpu", f"{title}: CPU", "% of a core", Sample.of(shares),
            demanded=Demand("ours", "most", 10),
        ),
        Figure(f"monitor/{name}/memory", f"{title}: memory", "MB", Sample.of([memory])),
        Figure(
            f"monitor/{name}/lag", f"{title}: `tailrace lag`", "s", Sample.of(table), demanded=Demand("ours", "most", 2)
        ),
        Figure(
            f"monitor/{name}/lag-json", f"{title}: `tailrace lag --json`", "s", Sample.of(everything),
            demanded=Demand("ours", "most", 2),
        ),
        Figure(
            f"monitor/{name}/lag-group", f"{title}: `tailrace lag GROUP`", "s", Sample.of(one_group),
            demanded=Demand("ours", "most", 2),
        ),
        compare(
            f"monitor/{name}/p99", producer.format("p99"), "µs", [p99 for p99, _ in beside], [p99 for p99, _ in alone],
            "without it", demanded=Demand("ratio", "most", 1.5),
        ),
        compare(
            f"monitor/{name}/longest", producer.format("longest"), "µs", [most for _, most in beside],
            [most for _, most in alone], "without it",
        ),
    ]  # fmt: skip


# The crowd


def topic_name(topic: int) -> str:
    return f"watched-{topic}"


def group_name(topic: int, group: int) -> str:
    return f"group-{topic}-{group}"


def make_crowd(broker: BrokerProcess, connection: RawConnection, behind: int) -> None:
    """All groups have read all but so many of the two records in each partition."""
    for topic in range(TOPICS):
        make_topic(broker.bootstrap, topic_name(topic), PARTITIONS)
        append(connection, topic)
        append(connection, topic)
        read(connection, topic)
        commit(connection, topic, 2 - behind)


def append(connection: RawConnection, topic: int) -> int:
    """One record to each partition of a topic. Returns its offset."""
    records = batch_of(170, now_ms=int(time.time() * 1000))
    partitions = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    data = [TopicProduceData(name=topic_name(topic), partition_data=partitions)]
    answer = connection.ask(
        ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), ProduceResponse, _PRODUCE_VERSION
    )
    assert not any(one.error_code for one in answer.responses[0].partition_responses)
    return answer.responses[0].partition_responses[0].base_offset


def read(connection: RawConnection, topic: int) -> None:
    """Who commits without fetching would be noted in the loss ledger."""
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(PARTITIONS)]
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic_name(topic), partitions=partitions)])
    connection.ask(request, FetchResponse, FETCH_VERSION)


def commit(connection: RawConnection, topic: int, offset: int) -> None:
    """All groups of a topic commit this offset in all of its partitions."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=topic_name(topic), partitions=partitions)]
    for first in range(0, GROUPS_OF_A_TOPIC, _COMMITS_AT_ONCE):
        names = [group_name(topic, group) for group in range(first, first + _COMMITS_AT_ONCE)]
        for name in names:
            request = OffsetCommitRequest(group_id=name, topics=topics)
            connection.send_frame(encode_request(request, _COMMIT_VERSION, 0, "bench"))
        for _ in names:
            _check(connection.receive_frame())


def _check(frame: bytes) -> None:
    answer = decode_response(OffsetCommitResponse, _COMMIT_VERSION, frame)[1]
    assert not any(one.error_code for one in answer.topics[0].partitions)


def follow(connection: RawConnection, topic: int) -> None:
    """A record more in each partition of a topic, and its groups read on by one."""
    base = append(connection, topic)
    read(connection, topic)
    commit(connection, topic, base)


# What is measured


def monitor_of(broker: BrokerProcess) -> int:
    """The monitor's process id, once it runs."""
    return child_of(broker, "tailrace.monitor")


def _share(pid: int, seconds: float) -> float:
    """Percent of a core in the next seconds."""
    before, began = process_tree.cpu_seconds(pid), time.perf_counter()
    time.sleep(seconds)
    return 100 * (process_tree.cpu_seconds(pid) - before) / (time.perf_counter() - began)


def _moving_share(bench: Bench, connection: RawConnection, pid: int, turn: int) -> float:
    bench.tell(f"the monitor beside {GROUPS} groups: interval {turn + 1}")
    follow(connection, turn)
    return _share(pid, INTERVAL_S)


def _lag_s(broker: BrokerProcess, *arguments: str) -> float:
    return _run_lag(broker, *arguments)[0]


def _run_lag(broker: BrokerProcess, *arguments: str) -> tuple[float, bytes]:
    """Seconds that `tailrace lag` takes, with the start of its process, and what it prints."""
    command = [sys.executable, "-m", "tailrace", "lag", *arguments, "-b", broker.bootstrap]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment(), timeout=300)
    return time.perf_counter() - began, done.stdout


def _json_s(broker: BrokerProcess, *arguments: str) -> float:
    seconds, printed = _run_lag(broker, *arguments, "--json")
    found = json.loads(printed)
    assert found["rates"] == "monitor", found["rates"]
    assert len(found["groups"]) == (PARTITIONS if arguments else GROUPS * PARTITIONS), len(found["groups"])
    return seconds


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _p99_alone(connection: RawConnection, pid: int) -> tuple[float, float]:
    with stopped(pid):
        return _p99(connection)


def _p99_beside(connection: RawConnection, pid: int) -> tuple[float, float]:
    """The monitor measures at least once in that time."""
    follow(connection, TOPICS - 1)
    return _p99(connection)


def _p99(connection: RawConnection) -> tuple[float, float]:
    """The p99 and the longest of round trips for an interval, in microseconds."""
    times: list[float] = []
    until = time.perf_counter() + INTERVAL_S
    while time.perf_counter() < until:
        times += round_trips(connection, "live", 1, 1000)
    return 1e6 * percentile(times, 99), 1e6 * max(times)
