"""What a start takes from the journal: what is missing, and nothing else."""

from dataclasses import dataclass

import pytest
from logs import DATA, ORDERS, PARTITION, batch_of, memory_files, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.partition_metadata import encode_topic_id
from tailrace.log.flush.journal import make_journal
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import PARTITION_METADATA
from tailrace.log.log import Log
from tailrace.log.scan.restore import JournaledLog
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import Action, make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = 5000
CONFIG = LogConfig(index_interval_bytes=300)
TOPIC_ID = bytes(range(16))
SIZE = 1 << 20
SEGMENT = f"{PARTITION}/00000000000000000000.log"


@dataclass
class Setup:
    """A log that was flushed up to somewhere, and committed behind that."""

    files: RecordingFiles
    flushed_bytes: int
    end_of_flushed: int
    written: dict[int, bytes]
    producers: dict[int, object]

    def start(self) -> tuple[DataDirectory, Log]:
        """On the disk as it is."""
        directory = DataDirectory(RecordingFiles(self.files.disk.copy()), DATA, CONFIG)
        return directory, directory.logs[ORDERS]

    @property
    def file(self) -> bytearray:
        return self.files.disk.file(SEGMENT)


@pytest.fixture
def setup() -> Setup:
    files = memory_files()
    directory = DataDirectory(files, DATA, CONFIG)
    log = directory.create(ORDERS, topic_id=TOPIC_ID)
    write_log(log, 6)
    log.flush()
    flushed = log.active.size, log.end_offset
    queue = FlushQueue()
    queue.journal = make_journal(files, DATA, SIZE)
    for number in range(3):
        write_log_of_others(log, 4, number)
        queue.request(log)
        queue.run_all()
    assert log.synced < log.high_watermark == log.end_offset
    return Setup(files, *flushed, stored_batches(log), dict(log.producers.producers))


def write_log_of_others(log: Log, batches: int, number: int) -> None:
    """Of a producer that goes on from one call to the next."""
    for batch in range(batches):
        sequence = 2 * (batches * number + batch)
        log.append(batch_of(2, producer=70, sequence=sequence), NOW)


def check(setup: Setup, log: Log) -> None:
    assert stored_batches(log) == setup.written
    assert not log.damage
    assert dict(log.producers.producers) == setup.producers


def test_a_batch_is_found_by_its_place_and_offset_alone() -> None:
    journaled, batch = JournaledLog(), batch_of(3)  # its offset is 0
    journaled.add(0, 500, batch + batch)
    assert [*journaled.batches_at(0, 500, 0)] == [batch]
    assert [*journaled.batches_at(0, 500 + len(batch), 0)] == [batch]
    for place in ((0, 500, 1), (0, 499, 0), (9, 500, 0)):
        assert [*journaled.batches_at(*place)] == []


def test_bytes_that_are_no_batches_are_passed_over() -> None:
    journaled = JournaledLog()
    for data in (bytes(10), bytes(100), batch_of(1)[:-1]):
        journaled.add(0, 0, data)
        assert [*journaled.batches_at(0, 0, 0)] == []


def test_what_the_log_has_lost_comes_back(setup: Setup) -> None:
    del setup.file[setup.flushed_bytes :]
    check(setup, setup.start()[1])


def test_it_is_on_disk_before_the_journal_counts_for_nothing(setup: Setup) -> None:
    del setup.file[setup.flushed_bytes :]
    files = RecordingFiles(setup.files.disk.copy())
    DataDirectory(files, DATA, CONFIG)
    for calls in range(len(files.calls) + 1):
        for disk in files.power_cuts(calls, limit=12, seed=calls):
            check(setup, DataDirectory(disk, DATA, CONFIG).logs[ORDERS])


@pytest.mark.parametrize("at", [0, 1, 70, 200, 900])
@pytest.mark.parametrize("length", [1, 61, 300])
def test_a_hole_is_filled_and_what_is_behind_it_stays(setup: Setup, at: int, length: int) -> None:
    start = setup.flushed_bytes + at
    end = min(start + length, len(setup.file))
    setup.file[start:end] = bytes(end - start)
    check(setup, setup.start()[1])


def test_two_holes_are_filled(setup: Setup) -> None:
    for start in (setup.flushed_bytes + 10, setup.flushed_bytes + 800):
        setup.file[start : start + 150] = bytes(150)
    check(setup, setup.start()[1])


def test_what_is_whole_is_not_written_again(setup: Setup) -> None:
    before = bytes(setup.file)
    directory, log = setup.start()
    check(setup, log)
    assert isinstance(directory.files, RecordingFiles)
    inode = directory.files.inode(SEGMENT)
    assert not [call for call in directory.files.calls if call.inode == inode and call.kind in ("write", "truncate")]
    assert directory.files.disk.file(SEGMENT) == before


def test_a_log_of_another_topic_gets_nothing(setup: Setup) -> None:
    del setup.file[setup.flushed_bytes :]
    other = TOPIC_ID[::-1]
    setup.files.disk.file(f"{PARTITION}/{PARTITION_METADATA}")[:] = encode_topic_id(other)
    _, log = setup.start()
    assert log.topic_id == other
    assert log.active.size == setup.flushed_bytes


def test_damage_to_what_was_flushed_stays_and_what_is_behind_comes_back(setup: Setup) -> None:
    setup.file[100] ^= 1
    del setup.file[setup.flushed_bytes :]
    _, log = setup.start()
    lost = {offset for bad in log.damage for offset in range(bad.first_offset, bad.last_offset + 1)}
    assert lost
    assert stored_batches(log) == {offset: data for offset, data in setup.written.items() if offset not in lost}


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_what_is_behind_comes_back_where_what_was_flushed_is_gone(setup: Setup, keep: float) -> None:
    before = {offset for offset in setup.written if offset >= setup.end_of_flushed}
    del setup.file[int(setup.flushed_bytes * keep) :]
    directory, log = setup.start()
    found = stored_batches(log)
    assert before <= set(found)
    assert {offset: setup.written[offset] for offset in found} == found
    lost = {offset for bad in log.damage for offset in range(bad.first_offset, bad.last_offset + 1)}
    assert set(setup.written) == set(found) | (set(setup.written) & lost)
    assert log.append(batch_of(1), NOW).base_offset == max(setup.written) + 2, "no offset is given again"
    directory.abandon()


@pytest.mark.parametrize("more", [False, True])
def test_a_repair_leaves_to_the_next_start_what_the_journal_has(setup: Setup, more: bool) -> None:
    setup.file[setup.flushed_bytes + 70] ^= 1
    if more:
        setup.files.disk.names[f"{PARTITION}/left.tmp"] = setup.files.disk.names[SEGMENT]
    files = RecordingFiles(setup.files.disk)
    plan = make_plan(files, locate(files, DATA))
    assert [step.action for step in plan.partitions[0].steps if step.damage is not None] == [Action.LEAVE]
    carry_out(files, plan, DATA, "2026-11-17T10:00:00+00:00")
    check(setup, setup.start()[1])


def test_what_is_damaged_beside_it_waits_until_then(setup: Setup) -> None:
    setup.file[100] ^= 1
    setup.file[setup.flushed_bytes + 70] ^= 1
    files = RecordingFiles(setup.files.disk)
    carry_out(files, make_plan(files, locate(files, DATA)), DATA, "2026-11-17T10:00:00+00:00")
    _, log = setup.start()
    assert set(setup.written) - set(stored_batches(log)) == {offset for offset in setup.written if offset == 0}


def test_a_repair_cuts_out_what_the_journal_has_not(setup: Setup) -> None:
    setup.file[100] ^= 1
    files = RecordingFiles(setup.files.disk)
    plan = make_plan(files, locate(files, DATA))
    assert [step.action for step in plan.partitions[0].steps if step.damage is not None] == [Action.CUT_OUT]


def test_a_clean_stop_needs_no_journal(setup: Setup) -> None:
    directory, _ = setup.start()
    directory.close(NOW)
    assert isinstance(directory.files, RecordingFiles)
    del directory.files.disk.file(SEGMENT)[setup.flushed_bytes :]  # nobody but somebody with an editor does that
    again = DataDirectory(directory.files, DATA, CONFIG).logs[ORDERS]
    assert again.segments[0].size == setup.flushed_bytes
    assert again.damage or again.active is not again.segments[0], "the loss is known"


def test_what_was_truncated_does_not_come_back() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, CONFIG)
    log = directory.create(ORDERS, topic_id=TOPIC_ID)
    log.flush()
    queue = FlushQueue()
    queue.journal = directory.journal = make_journal(files, DATA, SIZE)
    for number in range(2):
        write_log_of_others(log, 3, number)
        queue.request(log)
        queue.run_all()
    directory.truncate(ORDERS, 4)
    assert DataDirectory(RecordingFiles(files.disk.copy()), DATA, CONFIG).logs[ORDERS].end_offset == 4
    log.append(batch_of(2), NOW)
    queue.request(log)
    queue.run_all()
    found = DataDirectory(files.power_cut(0, tears=False), DATA, CONFIG).logs[ORDERS]
    assert (found.end_offset, stored_batches(found)) == (6, stored_batches(log))


def test_a_journal_that_is_gone_takes_nothing_but_what_was_in_it_alone(setup: Setup) -> None:
    del setup.file[setup.flushed_bytes :]
    disk: Disk = setup.files.disk
    del disk.names[f"{DATA}/tailrace.journal"]
    _, log = setup.start()
    assert log.active.size == setup.flushed_bytes
    assert not log.damage
