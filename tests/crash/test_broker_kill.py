"""A broker killed at any moment, again and again, under real clients that never stop.

Every acknowledged message is there once, in order, and nothing a reader saw is gone. A seed is one life of a data
directory, of 8 kills; `make crash` runs as many lives as ROUNDS kills need. What a kill cannot show is whether bytes
were on disk: the page cache outlives the process. Power cuts are in test_broker_power_cut.py.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from crash.clients import Clients, is_serious
from crash.victims import Victim, faulty, kept_on_failure, killed_at, needs_strace

from tailrace.testing.history import Promise

ROUNDS_A_LIFE = 25
CALLED_WITHIN = 3.0  # seconds from a start
ROUNDS = int(os.environ.get("ROUNDS", "500"))


def one_round(broker: Victim, clients: Clients, lot: random.Random) -> None:
    epoch = clients.leader_epoch()
    if lot.random() < 0.6:
        clients.wait_until_busy()
    time.sleep(lot.uniform(0.0, 0.3))
    end = lot.random()
    if end < 0.15:
        broker.stop()
        broker.start()
        assert clients.leader_epoch() == epoch, "a clean stop begins no epoch"
        return
    broker.kill()
    while end > 0.8:  # and again, in the middle of recovery or before it
        broker.live_for(lot.uniform(0.1, 0.6))
        end = lot.random()
    broker.start()
    assert clients.leader_epoch() > epoch, "an unclean stop begins an epoch"


@contextlib.contextmanager
def a_life(path: Path, seed: object) -> Iterator[tuple[Victim, Clients]]:
    """A broker that runs, under load; must run in the end, and is then checked."""
    broker = Victim(path / "broker")
    with kept_on_failure(broker, seed):
        broker.start()
        # Appended is with the operating system, which outlives the process: even `acks=1` is kept.
        clients = Clients(broker, seed, acks_1=Promise.KEPT)
        try:
            clients.make_topics()
            clients.start()
            yield broker, clients
            clients.stop()
        finally:
            clients.abandon()
        clients.check()
        assert clients.changes.answered, "no topic was made or deleted"
        broker.kill()
        broker.verify()
        assert "Traceback" not in broker.ever_said


def kill_again_and_again(path: Path, seed: int, rounds: int) -> None:
    lot = random.Random(seed)
    with a_life(path, seed) as (broker, clients):
        for _ in range(rounds):
            one_round(broker, clients, lot)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_killed_in_a_loop_keeps_what_it_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 0, 8)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(1, 1 + -(-ROUNDS // ROUNDS_A_LIFE)))
def test_a_broker_killed_hundreds_of_times_keeps_acknowledged_records_once_in_order(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path, seed, ROUNDS_A_LIFE)


def test_a_reader_that_waits_for_the_first_message_of_all_waits_on(tmp_path: Path) -> None:
    broker = Victim(tmp_path / "broker")
    with kept_on_failure(broker, "none"):
        broker.start()
        clients = Clients(broker, 0, acks_1=Promise.KEPT)
        clients.make_topics()
        with contextlib.closing(clients.consumer()) as consumer:
            consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
            assert consumer.poll(0.5) is None
            broker.kill()
            broker.start()
            errors = [message.error() for message in consumer.consume(10, 1.0)]
        assert not [str(error) for error in errors if error is None or is_serious(error)]


@needs_strace
def test_a_partition_killed_at_its_first_append_does_not_go_back_to_an_earlier_epoch(tmp_path: Path) -> None:
    broker = Victim(tmp_path / "broker")
    with kept_on_failure(broker, "none"):
        broker.start()
        clients = Clients(broker, 0, acks_1=Promise.KEPT)
        clients.make_topics()
        for _ in range(2):
            broker.kill()
            broker.start()
        epoch = clients.leader_epoch()
        with faulty(broker, "pwrite64", "signal=KILL", of=broker.data / "orders-0" / f"{0:020d}.log"):
            producer = Producer(clients.common | {"message.timeout.ms": 1000})
            producer.produce("orders", b"never", partition=0)
            assert broker.ended_with(within=20) == -signal.SIGKILL
        broker.start()
        assert clients.leader_epoch() > epoch


# At a call: the n-th of a thread since the start, so that small numbers are those of recovery.

SPREAD = [
    *[("pwrite64", 6), ("pwrite64", 300), ("fdatasync", 2), ("fsync", 4)],
]
BUSY_AFTER = 4  # that many points there is something new to recover
UP_TO = {"pwrite64": 100, "fdatasync": 50, "fsync": 25, "rename": 10, "ftruncate": 50, "unlink": 30, "mkdir": 4}
EACH = [(call, number) for call, count in UP_TO.items() for number in range(1, count + 1)]


def kill_at(path: Path, points: list[tuple[str, int]]) -> None:
    reached = 0
    with a_life(path, points) as (broker, clients):
        for index, (call, number) in enumerate(points):
            if index % BUSY_AFTER == 0:
                clients.wait_until_busy()
                broker.kill()
            broker.under = killed_at(call, number, broker.directory / "strace")
            reached += broker.live_for(CALLED_WITHIN)
            broker.under = ()
            if index % BUSY_AFTER == BUSY_AFTER - 1:
                broker.start()
        if len(points) % BUSY_AFTER:
            broker.start()
    assert reached >= len(points) // 2, "not even half of the calls were made"


@pytest.mark.slow
@needs_strace
@pytest.mark.timeout(300)
def test_a_broker_killed_at_a_disk_call_keeps_acknowledged_records_once_in_order(tmp_path: Path) -> None:
    kill_at(tmp_path, SPREAD)


@needs_strace
@pytest.mark.crash
@pytest.mark.parametrize("share", range(-(-len(EACH) // ROUNDS_A_LIFE)))
def test_a_broker_killed_at_any_disk_call_keeps_acknowledged_records_once_in_order(tmp_path: Path, share: int) -> None:
    kill_at(tmp_path, EACH[share * ROUNDS_A_LIFE :][:ROUNDS_A_LIFE])
