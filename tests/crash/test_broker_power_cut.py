"""The power of a broker's disk cut under load: every acknowledged message is there, and nothing a reader saw is gone.

The broker works on a file system in a file. A cut stops the process, copies the file, which is what the disk has by
then, and goes on with the copy: what was only in memory is gone, the journal is replayed, and the same clients, who
know nothing of it, are served from what is left. Flushes are made slow, so that cuts come between a write and its flush
and not only between two requests. Where flushes do nothing, and where acknowledgements do not wait for them, the same
test finds that messages are lost.
"""

import contextlib
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash.clients import Clients
from crash.victims import ACKNOWLEDGING_EARLY, WITH_SLOW_SYNC, WITHOUT_SYNC, VictimOnDisk, a_disk, kept_on_failure

from tailrace.testing.history import History, Kind, Promise, check

CUTS_A_LIFE = 5
CUTS = int(os.environ.get("CUTS", "20"))
NEVER = 600  # seconds: the file system writes when it is told to


def live(path: Path, seed: int, cuts: int, *, commit: int) -> None:
    with a_disk(path / "disk", commit=commit) as disk:
        broker = VictimOnDisk(path / "broker", disk, program=WITH_SLOW_SYNC)
        with kept_on_failure(broker, seed):
            broker.start()
            # With `acks=1` what is acknowledged may be lost, and its offset given again, unless somebody has read it.
            clients = Clients(broker, seed, acks_1=Promise.NOTHING)
            clients.make_topics()
            cut_again_and_again(broker, clients, random.Random(seed), cuts)
            clients.check()
            broker.cut_power()
            broker.verify()
            assert "Traceback" not in broker.ever_said


def cut_again_and_again(broker: VictimOnDisk, clients: Clients, lot: random.Random, cuts: int) -> None:
    """Waits until the clients have noted all that there is to know."""
    try:
        clients.start()
        for _ in range(cuts):
            clients.wait_until_busy()
            time.sleep(lot.uniform(0.0, 0.7))
            broker.cut_power()
            broker.start()
        clients.stop()
    finally:
        clients.abandon()


@pytest.mark.timeout(120)
def test_a_broker_whose_power_is_cut_keeps_what_it_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    live(tmp_path, 0, 2, commit=NEVER)


@pytest.mark.crash
@pytest.mark.parametrize("commit", [1, NEVER])
@pytest.mark.parametrize("seed", range(1, 1 + -(-CUTS // CUTS_A_LIFE)))
def test_a_broker_keeps_acknowledged_records_once_in_order_through_many_power_cuts(
    tmp_path: Path, seed: int, commit: int
) -> None:
    live(tmp_path, seed, CUTS_A_LIFE, commit=commit)


def check_finds_loss(path: Path, program: Sequence[str], cuts: int) -> History:
    with a_disk(path / "disk", commit=NEVER) as disk:
        broker = VictimOnDisk(path / "broker", disk, program=program)
        with contextlib.closing(broker):
            broker.start()
            clients = Clients(broker, 0, acks_1=Promise.NOTHING)
            clients.make_topics()
            disk.sync()  # else not even the topics would be left
            cut_again_and_again(broker, clients, random.Random(0), cuts)
    with pytest.raises(AssertionError):
        clients.check()
    return clients.history


@pytest.mark.crash
def test_the_same_test_fails_where_flushes_do_nothing(tmp_path: Path) -> None:
    history = check_finds_loss(tmp_path, WITHOUT_SYNC, cuts=1)
    assert {Kind.LOST_WRITE, Kind.READ_THEN_GONE} <= {anomaly.kind for anomaly in check(history)}


@pytest.mark.crash
def test_the_same_test_fails_where_acknowledgements_do_not_wait_for_flushes(tmp_path: Path) -> None:
    check_finds_loss(tmp_path, ACKNOWLEDGING_EARLY, cuts=2)
