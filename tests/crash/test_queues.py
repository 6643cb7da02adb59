"""The broker of a share group killed at any moment: every message is finished, and what workers were told is so.

The same with the power of the broker's disk cut, as in test_broker_power_cut.py.
"""

import os
import random
import time
from pathlib import Path

import pytest
from crash.crew import SETTINGS, Crew
from crash.victims import WITH_SLOW_SYNC, Victim, VictimOnDisk, a_disk, kept_on_failure
from waits import until

ROUNDS = int(os.environ.get("ROUNDS", "300"))
ROUNDS_A_LIFE = 25
CUTS = int(os.environ.get("CUTS", "20"))
CUTS_A_LIFE = 5
NEVER = 600  # seconds: the file system writes when it is told to


def crash(broker: Victim) -> None:
    if isinstance(broker, VictimOnDisk):
        broker.cut_power()
    else:
        broker.kill()
    broker.start()


def live(broker: Victim, seed: int, rounds: int) -> Crew:
    with kept_on_failure(broker, seed):
        broker.start()
        host, _, port = broker.bootstrap.rpartition(":")
        crew = Crew((host, int(port)), seed)
        crew.set_up()
        lot = random.Random(seed)
        try:
            crew.start()
            for _ in range(rounds):
                before = crew.finished
                until(lambda before=before: crew.finished > before or crew.trouble, 60)  # type: ignore[misc]
                time.sleep(lot.uniform(0.0, 0.3))
                crash(broker)
            crew.end()
        finally:
            crew.stop()
        assert "Traceback" not in broker.ever_said
        broker.kill()
        broker.verify()
    return crew


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_message_is_finished_though_the_broker_is_killed_again_and_again(tmp_path: Path) -> None:
    crew = live(Victim(tmp_path / "broker", settings=SETTINGS), 0, 25)
    assert crew.deliveries > len(crew.sent) > 100


def live_without_power(path: Path, seed: int, cuts: int) -> None:
    with a_disk(path / "disk", commit=NEVER) as disk:
        live(VictimOnDisk(path / "broker", disk, program=WITH_SLOW_SYNC, settings=SETTINGS), seed, cuts)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_message_is_finished_though_the_power_is_cut(tmp_path: Path) -> None:
    live_without_power(tmp_path, 0, 4)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(1, 1 + -(-ROUNDS // ROUNDS_A_LIFE)))
def test_every_message_is_finished_after_hundreds_of_kills(tmp_path: Path, seed: int) -> None:
    live(Victim(tmp_path / "broker", settings=SETTINGS), seed, ROUNDS_A_LIFE)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(1, 1 + -(-CUTS // CUTS_A_LIFE)))
def test_every_message_is_finished_after_many_power_cuts(tmp_path: Path, seed: int) -> None:
    live_without_power(tmp_path, seed, CUTS_A_LIFE)
