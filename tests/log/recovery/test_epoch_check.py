"""Leader epochs that the log contradicts: the checkpoint is rebuilt, and no record is lost by it."""

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, offsets_named, offsets_of, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.layout.config import LogConfig
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import Verification, verify
from tailrace.records.batch import split
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = 5000
CHECKPOINT = f"{PARTITION}/{EPOCHS_FILE}"
SEGMENT = f"{PARTITION}/00000000000000000000.log"
EPOCH_AT = 12  # in the header of a batch: outside of what its CRC covers


def killed(epochs: int = 3, config: LogConfig = SMALL) -> Disk:
    """A log that was written under several epochs, flushed, and never checkpointed behind the last start."""
    files = memory_files()
    directory = DataDirectory(files, DATA, config)
    log = directory.create(ORDERS)
    for epoch in range(epochs):
        if epoch:
            directory.abandon()
            directory = DataDirectory(files, DATA, config)
            log = directory.logs[ORDERS]
        for _ in range(8):
            log.append(batch_of(3), NOW)
        log.flush()
    return files.disk


def opened(disk: Disk) -> DataDirectory:
    return DataDirectory(RecordingFiles(disk.copy()), DATA, SMALL)


def verified(disk: Disk) -> Verification:
    files = RecordingFiles(disk.copy())
    return verify(files, locate(files, DATA))


WRONG = {
    "a later epoch": b"0\n1\n5 0\n",
    "an older copy": b"0\n1\n0 0\n",
    "starts too early": b"0\n3\n0 0\n1 12\n2 48\n",
    "starts too late": b"0\n3\n0 0\n1 24\n2 60\n",
    "starts behind the end": b"0\n2\n0 0\n1 900\n",
    "falls": b"0\n2\n2 0\n1 24\n",
    "garbage": b"\xff\x00 nonsense",
    "empty": b"",
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("clean", [False, True])
def test_a_wrong_checkpoint_of_the_epochs_costs_no_record_and_no_offset(wrong: str, clean: bool) -> None:
    disk = killed()
    if clean:
        files = RecordingFiles(disk)
        DataDirectory(files, DATA, SMALL).close(NOW)
        assert files.exists(f"{DATA}/{CLEAN_SHUTDOWN}")
        disk = files.disk
    before = stored_batches(opened(disk).logs[ORDERS])
    disk.file(CHECKPOINT)[:] = WRONG[wrong]
    found = verified(disk)
    assert found.healthy, found.damage
    assert not found.tail
    directory = opened(disk)
    log, report = directory.logs[ORDERS], directory.reports[ORDERS]
    assert report.truncation is None
    assert not report.damage
    assert stored_batches(log) == before
    assert log.append(batch_of(1), NOW).base_offset == 72
    log.flush()
    assert len(stored_batches(log)) == len(before) + 1


@pytest.mark.parametrize("wrong", ["a later epoch", "an older copy", "starts too early", "starts too late"])
def test_verify_says_that_the_checkpoint_of_the_epochs_will_be_rebuilt(wrong: str) -> None:
    disk = killed()
    disk.file(CHECKPOINT)[:] = WRONG[wrong]
    assert [fault.file for fault in verified(disk).derived if EPOCHS_FILE in fault.file] == [f"{ORDERS}/{EPOCHS_FILE}"]


def test_epochs_are_rebuilt_as_they_were() -> None:
    disk = killed()
    epochs = list(opened(disk).logs[ORDERS].epochs)
    disk.file(CHECKPOINT)[:] = WRONG["an older copy"]
    rebuilt = list(opened(disk).logs[ORDERS].epochs)
    assert rebuilt[:3] == epochs[:3]
    assert rebuilt[-1].epoch >= epochs[-1].epoch


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_single_batch_with_another_epoch_is_damaged_and_its_offsets_stay_used(number: int) -> None:
    disk = killed(1, LogConfig())
    content = disk.file(SEGMENT)
    batches = list(split(bytes(content)))
    position, header = batches[number]
    content[position + EPOCH_AT + 3] ^= 4
    lost = set(range(header.base_offset, header.next_offset))
    assert offsets_named(verified(disk).damage) == lost
    directory = opened(disk)
    log = directory.logs[ORDERS]
    assert directory.reports[ORDERS].truncation is None
    assert offsets_named(log.damage) == lost
    assert len(stored_batches(log)) == len(batches) - 1
    assert log.append(batch_of(1), NOW).base_offset == 24


@pytest.mark.parametrize("epochs", [(1 << 29, 3 << 28), (3 << 28, 1 << 29), (1 << 29, 1 << 29)])
def test_several_corrupt_epochs_cost_only_their_own_batches(epochs: tuple[int, int]) -> None:
    disk = killed(1)
    content = disk.file(SEGMENT)
    lost: set[int] = set()
    for (position, header), epoch in zip(list(split(bytes(content)))[1:4:2], epochs, strict=True):
        content[position + EPOCH_AT : position + EPOCH_AT + 4] = epoch.to_bytes(4)
        lost |= set(range(header.base_offset, header.next_offset))
    found = verified(disk)
    assert offsets_named(found.damage) == lost
    assert not found.derived, "the checkpoint is right"
    log = opened(disk).logs[ORDERS]
    assert offsets_named(log.damage) == lost
    assert offsets_of(stored_batches(log)) == set(range(24)) - lost
