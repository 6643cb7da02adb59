"""Fifty workers on two partitions, while workers are killed and paused, connections are cut, and the broker is killed:
each message is finished at least once, and none is lost.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.crews import Crew, crew_of
from compat.proxy import LosingProxy
from queues import SHARE_SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(900)]

ROUNDS = 4 if against_kafka() else 25
WORKERS = {"confluent": (10, 10, 10), "java": (10, 10)}  # processes of so many workers
MESSAGES = 40  # in each partition, each round
TOPIC = "work"


@pytest.fixture
def queue_broker(tmp_path: Path, proxy: LosingProxy) -> Iterator[BrokerProcess]:
    broker = new_broker(tmp_path / "broker", advertised=proxy.port, settings=SHARE_SETTINGS)
    proxy.broker_port = broker.port
    with contextlib.closing(broker):
        broker.start()
        yield broker


@pytest.fixture
def crew(queue_broker: BrokerProcess) -> Iterator[Crew]:
    with contextlib.closing(ConfluentClient(queue_broker.bootstrap)) as reference:
        reference.create_topic(TOPIC, partitions=2)
    with crew_of(queue_broker.bootstrap, "workers", TOPIC) as crew:
        crew.configure(share_delivery_count_limit="10")  # no message is given up because of the faults
        if not against_kafka():  # it has dead letters from 4.4 on
            crew.keep_dead_letters()
        yield crew


def test_no_message_is_lost_whatever_happens(crew: Crew, queue_broker: BrokerProcess, proxy: LosingProxy) -> None:
    chance = random.Random(TOPIC)
    processes = [crew.start(kind, count) for kind, counts in WORKERS.items() for count in counts]
    for process in processes:
        process.wait_until_joined()

    def kill_workers() -> None:
        number = chance.randrange(len(processes))
        old = processes[number]
        old.kill()
        processes[number] = crew.start(old.kind, old.count)

    def pause_workers() -> None:
        """Until others have done what the paused ones hold, which takes as long as a lock."""
        paused = chance.choice(processes)
        paused.pause()
        crew.wait_until_finished()
        paused.go_on()

    faults: list[Callable[[], object]] = [kill_workers, pause_workers, proxy.cut_all, queue_broker.kill_and_start]
    for number in range(ROUNDS):
        produce(crew, chance)
        faults[number % len(faults)]()
    crew.wait_until_finished()
    for place, value in crew.produced.items():
        outcomes = {outcome for _, outcome in crew.outcomes(place)}
        assert ("reject" if value.startswith(b"reject") else "accept") in outcomes, f"{place} is lost: {value!r}"
    if not against_kafka():
        letters = crew.dead_letters()
        assert {place: value for place, (value, _, _) in letters.items()} == {
            place: value for place, value in crew.produced.items() if value.startswith(b"reject")
        }
    for process in processes:
        process.leave()


def produce(crew: Crew, chance: random.Random) -> None:
    for partition in range(2):
        words = chance.choices(("accept", "release-to 2", "reject"), weights=(20, 2, 1), k=MESSAGES)
        crew.produce(*(f"{word},{number}" for number, word in enumerate(words)), partition=partition)
