"""A broker killed at any moment, again and again, under real clients that never stop.

Every acknowledged message is there once, in order, and nothing a reader saw is gone. A seed is one life of a data
directory, of 25 kills; `make crash` runs as many lives as ROUNDS kills need. What a kill cannot show is whether bytes
were on disk: the page cache outlives the process. Power cuts are in test_broker_power_cut.py.
"""

import os
import random
import time
from pathlib import Path

import pytest
from crash.clients import Clients
from crash.victims import Victim, kept_on_failure

from tailrace.testing.history import Promise

ROUNDS_A_LIFE = 25
ROUNDS = int(os.environ.get("ROUNDS", "500"))


def one_round(broker: Victim, clients: Clients, lot: random.Random) -> None:
    epoch = clients.leader_epoch()
    if lot.random() < 0.8:
        clients.wait_until_busy()
    time.sleep(lot.uniform(0.0, 0.4))
    end = lot.random()
    if end < 0.15:
        broker.stop()
        broker.start()
        assert clients.leader_epoch() == epoch, "a clean stop begins no epoch"
        return
    broker.kill()
    while end > 0.8:  # and again, in the middle of recovery or before it
        broker.kill_while_starting(lot.uniform(0.1, 0.6))
        end = lot.random()
    broker.start()
    assert clients.leader_epoch() > epoch, "an unclean stop begins an epoch"


def live(path: Path, seed: int, rounds: int) -> None:
    broker = Victim(path / "broker")
    with kept_on_failure(broker, seed):
        broker.start()
        # Appended is with the operating system, which outlives the process: even `acks=1` is kept.
        clients = Clients(broker, seed, acks_1=Promise.KEPT)
        try:
            clients.start()
            lot = random.Random(seed)
            for _ in range(rounds):
                one_round(broker, clients, lot)
            clients.stop()
        finally:
            clients.abandon()
        clients.check()
        assert clients.changes.answered, "no topic was made or deleted"
        broker.kill()
        broker.verify()
        assert "Traceback" not in broker.said()


@pytest.mark.timeout(300)
def test_a_broker_killed_in_a_loop_keeps_what_it_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    live(tmp_path, 0, ROUNDS_A_LIFE)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(1, 1 + -(-ROUNDS // ROUNDS_A_LIFE)))
def test_a_broker_killed_hundreds_of_times_keeps_what_it_acknowledged_once_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    live(tmp_path, seed, ROUNDS_A_LIFE)
