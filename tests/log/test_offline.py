"""A log whose disk failed: it takes no appends until the next start, and logs that once, however it happened."""

import logging
from collections.abc import Callable
from errno import EIO

import pytest
from logs import DATA, ORDERS, SMALL, batch_of, memory_files, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.errors import LogOffline
from tailrace.testing.faulty_files import FaultyFiles

NOW = 5000


class Victim:
    def __init__(self) -> None:
        self.files = FaultyFiles(memory_files())
        self.directory = DataDirectory(self.files, DATA, SMALL)
        self.log = self.directory.create(ORDERS)
        write_log(self.log, 10)
        self.log.flush()

    def append(self) -> None:
        self.log.append(batch_of(1), NOW)

    def flush(self) -> None:
        self.append()
        self.log.flush()

    def roll(self) -> None:
        self.append()
        self.log.roll()

    def raise_leader_epoch(self) -> None:
        self.log.raise_leader_epoch(7)

    def truncate(self) -> None:
        self.log.truncate(3)


WAYS = [
    ("sync", Victim.flush, "a flush failed"),
    ("write_at", Victim.append, "a write failed"),
    ("open", Victim.roll, "a write failed"),
    ("rename", Victim.raise_leader_epoch, "saving the leader epoch failed"),
    ("truncate", Victim.truncate, "a truncation failed"),
]


@pytest.mark.parametrize(("kind", "do", "reason"), WAYS, ids=[do.__name__ for _, do, _ in WAYS])
def test_a_log_that_goes_offline_logs_one_error_that_says_why_and_what_to_do(
    kind: str, do: Callable[[Victim], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    victim = Victim()
    victim.files.fail(kind, EIO)
    with pytest.raises(LogOffline):
        do(victim)
    for again in (victim.append, victim.flush, lambda: victim.log.raise_leader_epoch(8)):
        with pytest.raises(LogOffline):
            again()
    victim.directory.checkpoint(NOW)
    victim.directory.close(NOW)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert said.startswith(f"{reason} in {victim.log.directory}, which is now read-only: {victim.log.directory}/")
    assert "Input/output error" in said
    assert "then restart the broker" in said


def test_a_checkpoint_and_a_stop_that_take_a_log_offline_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    for end in (DataDirectory.checkpoint, DataDirectory.close):
        caplog.clear()
        victim = Victim()
        victim.append()
        victim.files.fail("sync", EIO, name=".log")
        end(victim.directory, NOW)
        assert victim.log.offline is not None
        assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
