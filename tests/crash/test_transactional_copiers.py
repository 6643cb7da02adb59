"""Copiers and broker killed at any moment: the output is the input, once and in order, and no transaction stays open.

A copier reads a topic and writes another, both of several partitions, with its offsets in the same transactions. The
confluent and aiokafka ones are those of examples/; Java's speaks version 2 of transactions, and aborts at random. The
same with the power of the broker's disk cut, as in test_broker_power_cut.py.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from compat.transactions import transactional
from crash.copiers import (
    INPUT,
    OUTPUT,
    PARTITIONS,
    Copier,
    Feeder,
    Topics,
    difference,
    example,
    java_copier,
    pick,
    wait_for,
)
from crash.victims import WITH_SLOW_SYNC, Victim, VictimOnDisk, a_disk, kept_on_failure

ROUNDS = int(os.environ.get("ROUNDS", "300"))
ROUNDS_A_LIFE = 25
CUTS = int(os.environ.get("CUTS", "20"))
CUTS_A_LIFE = 5
NEVER = 600  # seconds: the file system writes when it is told to
COPIERS: dict[str, tuple[Callable[[str], list[str]], Callable[[str], str]]] = {
    "confluent": (lambda bootstrap: example("copy_confluent", bootstrap), str.upper),
    "aiokafka": (lambda bootstrap: example("copy_aiokafka", bootstrap), str.upper),
    "java": (java_copier, str.upper),
}
each_copier = pytest.mark.parametrize(
    "kind", ["confluent", "aiokafka", pytest.param("java", marks=pytest.mark.needs("kafka"))]
)


def crash(broker: Victim) -> None:
    if isinstance(broker, VictimOnDisk):
        broker.cut_power()
    else:
        broker.kill()
    broker.start()


def one_round(broker: Victim, copier: Copier, topics: Topics, lot: random.Random) -> None:
    """More of the output is committed; then something dies."""
    before = sum(topics.committed_ends())
    wait_for([copier], lambda: sum(topics.committed_ends()) > before, "a commit")
    time.sleep(lot.uniform(0.0, 0.4))
    killed = pick(lot)
    if "copier" in killed:
        copier.kill()
    if "broker" in killed:
        crash(broker)


def leave_open(bootstrap: str) -> None:
    """A transaction in all partitions of the output, whose producer dies."""
    with transactional("confluent", bootstrap, "dies", timeout_ms=2000) as producer:
        producer.do("begin")
        for partition in range(PARTITIONS):
            producer.send(OUTPUT, "never", partition=partition)
        producer.do("offset", "dies", INPUT, 0, 1)


def live(broker: Victim, path: Path, kind: str, seed: int, rounds: int) -> None:
    command, transform = COPIERS[kind]
    copier = Copier(command(broker.bootstrap), path / "copier")
    with kept_on_failure(broker, seed), contextlib.ExitStack() as stack:
        broker.start()
        topics = Topics(broker.bootstrap)
        topics.create()
        stack.callback(copier.kill)
        feeder = Feeder(broker.bootstrap)
        stack.callback(feeder.stop)
        lot = random.Random(seed)
        for _ in range(rounds):
            one_round(broker, copier, topics, lot)
        feeder.stop()
        leave_open(broker.bootstrap)
        crash(broker)
        wanted = {key: [transform(value) for value in values] for key, values in topics.by_key(INPUT).items()}
        count = sum(map(len, wanted.values()))
        wait_for([copier], lambda: sum(map(len, topics.by_key(OUTPUT).values())) >= count, "the rest of the input")
        copier.kill()
        assert not difference(wanted, topics.by_key(OUTPUT))
        wait_for(
            [], lambda: not any(topics.is_open(each) for each in (INPUT, OUTPUT, "__consumer_offsets")), "the last end"
        )
        assert not difference(wanted, topics.by_key(OUTPUT))
        assert "Traceback" not in broker.ever_said
        broker.kill()
        broker.verify()


@pytest.mark.slow
@pytest.mark.timeout(400)
@each_copier
def test_a_copy_is_complete_once_and_in_order_after_kills_of_broker_and_copier(tmp_path: Path, kind: str) -> None:
    live(Victim(tmp_path / "broker"), tmp_path, kind, 0, 9)


def live_without_power(path: Path, kind: str, seed: int, rounds: int) -> None:
    with a_disk(path / "disk", commit=NEVER) as disk:
        live(VictimOnDisk(path / "broker", disk, program=WITH_SLOW_SYNC), path, kind, seed, rounds)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_copy_is_complete_once_and_in_order_after_power_cuts(tmp_path: Path) -> None:
    live_without_power(tmp_path, "confluent", 0, 4)


@pytest.mark.crash
@each_copier
@pytest.mark.parametrize("seed", range(1, 1 + -(-ROUNDS // ROUNDS_A_LIFE)))
def test_a_copy_is_complete_once_and_in_order_after_hundreds_of_kills(tmp_path: Path, kind: str, seed: int) -> None:
    live(Victim(tmp_path / "broker"), tmp_path, kind, seed, ROUNDS_A_LIFE)


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["confluent", pytest.param("java", marks=pytest.mark.needs("kafka"))])
@pytest.mark.parametrize("seed", range(1, 1 + -(-CUTS // CUTS_A_LIFE)))
def test_a_copy_is_complete_once_and_in_order_after_many_power_cuts(tmp_path: Path, kind: str, seed: int) -> None:
    live_without_power(tmp_path, kind, seed, CUTS_A_LIFE)
