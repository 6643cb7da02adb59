"""A writer killed at any moment, again and again: what it said was flushed is there, and all that is there is right."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import killed_writer
import pytest
from killed_writer import CONFIG, ORDERS, record_at
from logs import stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.records.record import decode_records

ROUNDS = int(os.environ.get("ROUNDS", "500"))


def write_and_kill(path: Path, seed: int, kind: str) -> int:
    """Lets a writer work for a moment, kills it, and says up to which offset it had promised its records safe."""
    process = subprocess.Popen([sys.executable, killed_writer.__file__, path, str(seed), kind], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"flushed")
    time.sleep(random.Random(seed).uniform(0.0, 0.15))
    process.kill()
    lines = process.stdout.read().decode().splitlines()
    process.wait()
    process.stdout.close()
    return max((int(line.split()[1]) for line in lines if line.startswith("flushed")), default=0)


def check(path: Path, promised: int) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(path), CONFIG)
    try:
        log = directory.logs[ORDERS]
        assert log.end_offset >= promised, f"{promised - log.end_offset} records are gone that were flushed"
        assert not log.damage
        assert not directory.reports[ORDERS].damage
        records = [record for data in stored_batches(log).values() for record in decode_records(data)]
        assert [record.offset for record in records if record.offset >= log.start_offset] == list(
            range(log.start_offset, log.end_offset)
        )
        assert records == [record_at(record.offset) for record in records]
    finally:
        directory.close(0)
        if promised % 3:  # most rounds begin after an unclean stop
            (path / ".kafka_cleanshutdown").unlink(missing_ok=True)  # where damage was found, the stop was none


def kill_again_and_again(path: Path, rounds: int, kind: str) -> None:
    for seed in range(rounds):
        check(path, write_and_kill(path, seed, kind))


@pytest.mark.timeout(180)
def test_a_writer_killed_in_a_loop_loses_nothing_it_had_flushed(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", 25, "honest")


@pytest.mark.timeout(180)
def test_a_writer_killed_on_a_disk_without_unsynced_bytes_loses_nothing_flushed(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", 10, "losing")


def test_the_same_test_fails_where_a_flush_does_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        kill_again_and_again(tmp_path / "data", 10, "lying")


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["honest", "losing"])
def test_a_writer_killed_hundreds_of_times_loses_nothing_it_had_flushed(tmp_path: Path, kind: str) -> None:
    kill_again_and_again(tmp_path / "data", ROUNDS, kind)
